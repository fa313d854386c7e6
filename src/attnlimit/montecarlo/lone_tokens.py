"""What does one rare token do to the covariance of all outputs? A control for its squared error.

As in `lone`, but the token is a key of every query and a query too, and n - 1 others are as
expected. A Gaussian token y does much if queries score it high, s = |Sigma^{1/2} A' y| being the
deviation of their scores, and if its value is long. So it is taken for |Vy|^4 kappa(s), with kappa
averaged over directions; the mean over tokens is then one inverse Fourier transform in s^2, exact
for the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.montecarlo.estimators import times
from attnlimit.theory.limit import horizon, limit
from attnlimit.tokens import Gaussian, Tokens

DIRECTIONS, QUERIES = 32, 64
STEP = 0.05
RARE = 2.0
"""The table's step and where it begins, in strongest deviations."""
TILT = 0.9
"""Directions are those of rare tokens, nearer to the strong axes than others."""
FREQUENCIES = 1 << 14


@dataclass(frozen=True)
class LoneTokens:
    """Tables of kappa against s, one for each n."""

    scores: Tensor  # (d, d), from a token to its coordinates of length s
    values: Tensor  # (d, d_v)
    step: float
    tables: dict[int, Tensor]  # (nodes,)
    means: dict[int, float]  # of |Vy|^4 kappa(s)

    def places(self, tokens: Tensor) -> Tensor:
        """Where tokens (B, n, d) are in the tables, and |Vy|^4: (B, n, 2)."""
        if not self.tables:
            return tokens.new_zeros((*tokens.shape[:2], 2))
        deviations = times(tokens, self.scores).square_().sum(-1).sqrt_()
        lengths = times(tokens, self.values).square_().sum(-1)
        return torch.stack([deviations / self.step, lengths.square_()], dim=-1)

    def excess(self, places: Tensor, n: int) -> Tensor:
        """What the first n tokens of each set do, less its mean: (B,); zero if that is unknown."""
        if n not in self.tables:
            return places.new_zeros(len(places), dtype=torch.float64)
        table = self.tables[n]
        place, length = places[:, :n].unbind(-1)
        place = place.clamp_max(len(table) - 1 - 1e-3)
        left = place.long()
        low, high = table[left], table[left + 1]
        done = length * (low + (high - low) * (place - left))
        return done.sum(1, dtype=torch.float64) - n * self.means[n]


def lone_tokens(head: Head, tokens: Tokens, sizes: Sequence[int]) -> LoneTokens:
    """Tabulate what one of n centred Gaussian tokens does, for every n in `sizes`.

    Nothing past the horizon 1, where rare tokens are not alone.
    """
    root = tokens.sqrt_cov()
    _, strengths, axes = np.linalg.svd(root @ head.A.T @ root)
    step = STEP * float(strengths[0])
    scores, values = (torch.from_numpy(one.copy()).float() for one in (head.A @ root, head.V.T))
    if not sizes or step == 0 or horizon(head, tokens) >= 1:
        return LoneTokens(scores, values, step, {}, {})
    frame = root @ axes.T  # a token is frame z, and s^2 the sum of (strength z)^2
    tilted = 1 / np.sqrt(1 - TILT * (strengths / strengths[0]) ** 2)
    directions = Gaussian(dim=tokens.dim).points(DIRECTIONS) * tilted
    directions /= np.linalg.norm(directions * strengths, axis=1, keepdims=True)
    squares, density = _fourth_moments(strengths, frame.T @ head.V.T @ head.V @ frame)
    nodes = step * np.arange(int(np.sqrt(squares[-1]) / step) + 2)
    places = (nodes[:, None, None] * directions @ frame.T).reshape(-1, tokens.dim)
    lengths = ((places @ head.V.T) ** 2).sum(axis=1).reshape(len(nodes), -1)
    rare = np.clip(nodes / strengths[0] - RARE, 0.0, 1.0)
    tables: dict[int, Tensor] = {}
    means: dict[int, float] = {}
    for n in sizes:
        done = lone_squares(head, tokens, places, n).reshape(lengths.shape)
        total = np.maximum(lengths**2, np.finfo(float).tiny).sum(axis=1)
        kappa = rare * (done - done[0]).sum(axis=1) / total
        tables[n] = torch.from_numpy(kappa).float()
        means[n] = float(density @ np.interp(np.sqrt(squares), nodes, kappa))
    return LoneTokens(scores, values, step, tables, means)


def _fourth_moments(strengths: Array, metric: Array) -> tuple[Array, Array]:
    """E[(z'Mz)^2; s^2 = x] for normal z, s^2 = sum (strength z)^2, as weights on a grid of x.

    Its transform is E[(z'Mz)^2 e^{w s^2}] = det(D)^{1/2} ((tr M D)^2 + 2 tr M D M D) with
    D = 1 / (1 - 2 w strength^2). The real part of w is near the largest that there is: the tail,
    where kappa is large, is then as exact as the rest.
    """
    largest = strengths[0] ** 2
    step = (150 * largest + 2 * (strengths**2).sum()) / FREQUENCIES
    squares = step * np.arange(FREQUENCIES)
    tilt = 0.4 / largest
    frequencies = tilt + 2j * np.pi * np.fft.rfftfreq(FREQUENCIES, step)
    damped = 1 / (1 - 2 * frequencies[:, None] * strengths**2)
    first = damped @ np.diag(metric)
    second = ((damped @ metric**2) * damped).sum(axis=1)
    transform = np.exp(0.5 * np.log(damped).sum(axis=1)) * (first**2 + 2 * second)
    weights = np.fft.irfft(transform.conj(), FREQUENCIES) * np.exp(-tilt * squares)
    return squares, np.asarray(weights)


def lone_squares(head: Head, tokens: Tokens, lone: Array, n: int) -> Array:
    """|Cov' - Cov|_F^2 of n outputs with one token at `lone` (B, d) and n - 1 as expected: (B,).

    Cov' - Cov is G' diag(p) G + U S U' with the limit outputs G of some queries (K, v) and
    U = (value, shift, own output, mean), so that its norm takes no d_v x d_v matrices.
    """
    queries = tokens.points(QUERIES)
    queries = np.concatenate([queries, -queries])
    outputs = limit(head, tokens)(queries)
    count = len(queries)
    tilts, own_tilts = queries @ head.A.T, lone @ head.A.T
    others = np.log(max(n - 1, 1))
    # What share of the attention of each query, (B, K), and of its own the token has.
    seen = expit(lone @ tilts.T - tokens.cgf(tilts) - others)
    kept = expit((lone * own_tilts).sum(axis=1) - tokens.cgf(own_tilts) - others)[:, None]
    value = lone @ head.V.T
    own = (1 - kept) * limit(head, tokens)(lone) + kept * value
    rest = (n - 1) / n
    shift = (seen - seen**2) @ outputs / count
    mean = rest * (seen.mean(axis=1)[:, None] * value - seen @ outputs / count) + own / n
    diagonal = (rest * (seen**2 - 2 * seen) - 1 / n) / count
    sides = np.stack([value, shift, own, mean], axis=2)  # (B, v, 4)
    middle = np.zeros((len(lone), 4, 4))
    middle[:, 0, 0] = rest * (seen**2).mean(axis=1)
    middle[:, 0, 1] = middle[:, 1, 0] = rest
    middle[:, 2, 2], middle[:, 3, 3] = 1 / n, -1.0
    along = outputs @ sides  # (B, K, 4)
    gram = middle @ (sides.transpose(0, 2, 1) @ sides)
    crossed = ((along @ middle) * along).sum(axis=2)
    squares = (diagonal @ (outputs @ outputs.T) ** 2 * diagonal).sum(axis=1)
    squares += 2 * (diagonal * crossed).sum(axis=1)
    return np.asarray(squares + (gram * gram.transpose(0, 2, 1)).sum(axis=(1, 2)))
