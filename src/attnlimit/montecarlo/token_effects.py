"""What do single tokens do to the covariance of all outputs? Their sum squared, as a control.

A token y that queries look at moves the covariance mostly by a multiple of its own value's square,
Vy y'V'. The multiple is taken for a function rho of s = |Sigma^{1/2} A' y|, the deviation of the
queries' scores on it, tabulated with n - 1 other tokens as expected. The squared length of
sum_i rho(s_i) Vy_i y_i'V', less its mean, then varies with the squared error of the covariance,
rare tokens included. Its own mean comes from inverse Fourier transforms in s^2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.montecarlo.estimators import times
from attnlimit.theory.limit import limit
from attnlimit.tokens import Gaussian, Tokens

DIRECTIONS, QUERIES = 32, 64
STEP = 0.05
"""The table's step, in strongest deviations."""
TILT = 0.9
"""Directions are those of rare tokens, nearer to the strong axes than others."""
FREQUENCIES = 1 << 14
FEW, FINER = 9, 16
"""In few dimensions s^2 has a density that is steep at zero: a grid so many times finer."""


@dataclass(frozen=True)
class TokenEffects:
    """Tables of rho against s, one for each n; none where nothing is known."""

    scores: Tensor  # (d, d), from a token to its coordinates of length s
    values: Tensor  # (d, d_v)
    step: float
    tables: dict[int, Tensor] = field(default_factory=dict)  # (nodes,)
    means: dict[int, Tensor] = field(default_factory=dict)  # of rho Vy y'V', (d_v, d_v)
    squares: dict[int, float] = field(default_factory=dict)  # of the sum over n tokens, expected

    def places(self, tokens: Tensor) -> Tensor:
        """Where tokens (B, n, d) are in the tables: (B, n)."""
        if not self.tables:
            return tokens.new_zeros(tokens.shape[:2])
        return times(tokens, self.scores).square_().sum(-1).sqrt_() / self.step

    def surplus(self, tokens: Tensor, places: Tensor, n: int) -> Tensor:
        """What the first n tokens do, squared, less its mean: (B, 1), or (B, 0) if unknown."""
        if n not in self.tables:
            return tokens.new_zeros((len(tokens), 0), dtype=torch.float64)
        table = self.tables[n]
        place = places[:, :n].clamp_max(len(table) - 1 - 1e-3)
        left = place.long()
        low, high = table[left], table[left + 1]
        rho = (low + (high - low) * (place - left)).double()
        some = tokens[:, :n].double()
        inner = (rho[..., None] * some).mT @ some
        moved = times(self.values.T @ inner, self.values) - n * self.means[n]
        return (moved.square().sum((1, 2)) - self.squares[n])[:, None]


def token_effects(head: Head, tokens: Tokens, sizes: Sequence[int]) -> TokenEffects:
    """Tabulate what one of n centred Gaussian tokens does, for every n in `sizes`."""
    root = tokens.sqrt_cov()
    _, strengths, axes = np.linalg.svd(root @ head.A.T @ root)
    step = STEP * float(strengths[0])
    scores, values = torch.from_numpy((head.A @ root).copy()), torch.from_numpy(head.V.T.copy())
    if not sizes or step == 0:
        return TokenEffects(scores.float(), values, step)
    frame = root @ axes.T  # a token is frame z, and s^2 the sum of (strength z)^2
    value = head.V @ frame
    tilted = 1 / np.sqrt(1 - TILT * (strengths / strengths[0]) ** 2)
    directions = Gaussian(dim=tokens.dim).points(DIRECTIONS) * tilted
    directions /= np.linalg.norm(directions * strengths, axis=1, keepdims=True)
    squares, second, fourth = _moments(strengths, value.T @ value)
    deviations = np.sqrt(squares)
    nodes = step * np.arange(1, int(deviations[-1] / step) + 3)
    places = (nodes[:, None, None] * directions @ frame.T).reshape(-1, tokens.dim)
    lengths = (((places @ head.V.T) ** 2).sum(axis=1) ** 2).reshape(len(nodes), -1).sum(axis=1)
    tables: dict[int, Tensor] = {}
    means: dict[int, Tensor] = {}
    expected: dict[int, float] = {}
    for n in sizes:
        rho = effect(head, tokens, places, n).reshape(len(nodes), -1).sum(axis=1)
        rho /= np.maximum(lengths, np.finfo(float).tiny)
        at = np.interp(deviations, nodes, rho)
        mean = (value * (at @ second)) @ value.T
        tables[n] = torch.from_numpy(np.append(rho[0], rho)).float()
        means[n] = torch.from_numpy(mean)
        expected[n] = n * float(at**2 @ fourth - (mean**2).sum())
    return TokenEffects(scores.float(), values, step, tables, means, expected)


def _moments(strengths: Array, metric: Array) -> tuple[Array, Array, Array]:
    """E[z_j^2; s^2 = x] and E[(z'Mz)^2; s^2 = x] for normal z, as weights on a grid of x.

    s^2 is the sum of (strength z)^2. With D = 1 / (1 - 2 w strength^2) the transforms, means of
    what is asked for times e^{w s^2}, are det(D)^{1/2} D and
    det(D)^{1/2} ((tr M D)^2 + 2 tr M D M D). The real part of w is near the largest that there is:
    the tail, where rho is large, is then as exact as the rest. In one dimension, where the density
    of s^2 is singular, the grid is one of z.
    """
    largest = strengths[0] ** 2
    many = FREQUENCIES * (FINER if len(strengths) <= FEW else 1)
    if len(strengths) == 1:
        z, width = np.linspace(0, 14, many, retstep=True)
        chance = np.sqrt(2 / np.pi) * np.exp(-(z**2) / 2) * width
        return largest * z**2, (chance * z**2)[:, None], chance * (metric[0, 0] * z**2) ** 2
    step = (150 * largest + 2 * (strengths**2).sum()) / many
    squares = step * np.arange(many)
    tilt = 0.4 / largest
    frequencies = tilt + 2j * np.pi * np.fft.rfftfreq(many, step)
    damped = 1 / (1 - 2 * frequencies[:, None] * strengths**2)
    first = damped @ np.diag(metric)
    crossed = ((damped @ metric**2) * damped).sum(axis=1)
    volume = np.exp(0.5 * np.log(damped).sum(axis=1))[:, None]
    transforms = volume * np.column_stack([damped, first**2 + 2 * crossed])
    weights = np.fft.irfft(transforms.conj(), many, axis=0) * np.exp(-tilt * squares)[:, None]
    return squares, weights[:, :-1], weights[:, -1]


def effect(head: Head, tokens: Tokens, lone: Array, n: int) -> Array:
    """<Cov' - Cov, v v'> of n outputs with one token at `lone` (B, d), v = V lone, and others.

    These are n - 1 tokens as expected. Cov' - Cov is that of queries whose outputs the token has
    drawn to its value by the share of their attention that it has, and its own output's.
    """
    queries = tokens.points(QUERIES)
    queries = np.concatenate([queries, -queries])
    outputs = limit(head, tokens)(queries)
    tilts, own_tilts = queries @ head.A.T, lone @ head.A.T
    others = np.log(max(n - 1, 1))
    seen = expit(lone @ tilts.T - tokens.cgf(tilts) - others)  # (B, K)
    kept = expit((lone * own_tilts).sum(axis=1) - tokens.cgf(own_tilts) - others)
    value = lone @ head.V.T
    length = (value**2).sum(axis=1)
    along = value @ outputs.T  # outputs of queries along v, (B, K)
    moved = along + seen * (length[:, None] - along)
    own = (1 - kept) * (limit(head, tokens)(lone) * value).sum(axis=1) + kept * length
    rest = (n - 1) / n
    mean = rest * moved.mean(axis=1) + own / n
    return np.asarray(
        rest * (moved**2).mean(axis=1) + own**2 / n - mean**2 - (along**2).mean(axis=1)
    )
