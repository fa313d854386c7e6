"""What does one rare token do to the covariance of all outputs? A control for its squared error.

As in `lone`, but the token is a key of every query and a query too, and n - 1 others are as
expected. Gaussian tokens are independent along the head's key axes, so what a token on each axis
does is tabulated, and its mean is a one-dimensional integral, exact for the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import expit, ndtr
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.montecarlo.estimators import times
from attnlimit.theory.limit import horizon, limit
from attnlimit.tokens import Tokens

AXES = 8
"""The strongest key axes, on which a rare token does most."""
QUERIES = 64
REACH, STEP = 9.0, 0.05
"""Of the table, in deviations."""


@dataclass(frozen=True)
class LoneAxes:
    """Tables of |Cov' - Cov|^2 against the whitened coordinate on each axis, one for each n."""

    whiten: Tensor  # (d, axes)
    tables: dict[int, Tensor]  # (axes, nodes)
    means: dict[int, float]  # of one token, over all axes

    def places(self, tokens: Tensor) -> Tensor:
        """Where tokens (B, n, d) are in the tables, on each axis: (B, n, axes)."""
        return times(tokens, self.whiten).abs_().div_(STEP).clamp_max_(REACH / STEP - 1e-3)

    def excess(self, places: Tensor, n: int) -> Tensor:
        """What the first n tokens of each set do, less its mean: (B,); zero if that is unknown."""
        total = places.new_zeros(len(places), dtype=torch.float64)
        if n not in self.tables:
            return total
        place = places[:, :n]
        node = place.long()
        for axis, table in enumerate(self.tables[n]):
            left = node[..., axis]
            low, high = table[left], table[left + 1]
            total += (low + (high - low) * (place[..., axis] - left)).sum(1, dtype=torch.float64)
        return total - n * self.means[n]


def lone_axes(head: Head, tokens: Tokens, sizes: Sequence[int]) -> LoneAxes:
    """Tabulate what one of n centred Gaussian tokens does, for every n in `sizes`.

    Nothing past the horizon 1, where rare tokens are not alone.
    """
    if not sizes or horizon(head, tokens) >= 1:
        return LoneAxes(torch.zeros(tokens.dim, 0), {}, {})
    root = tokens.sqrt_cov()
    _, _, axes = np.linalg.svd(root @ head.A.T @ root)
    frame = (root @ axes.T)[:, :AXES]
    nodes = np.linspace(0.0, REACH, round(REACH / STEP) + 1)
    places = (frame.T[:, None, :] * nodes[:, None]).reshape(-1, tokens.dim)
    lone = {n: lone_squares(head, tokens, places, n).reshape(-1, len(nodes)) for n in sizes}
    return LoneAxes(
        torch.from_numpy(np.linalg.pinv(root @ axes.T)[:AXES].T.copy()).float(),
        {n: torch.from_numpy(table).float() for n, table in lone.items()},
        {n: float((table @ _hat_means(nodes)).sum()) for n, table in lone.items()},
    )


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


def _hat_means(nodes: Array) -> Array:
    """Weights with which a table's interpolation is averaged over |z|, z standard normal."""
    chance = 2 * np.diff(ndtr(nodes))
    density = np.exp(-(nodes**2) / 2) / np.sqrt(2 * np.pi)
    first = -2 * np.diff(density)  # of z itself, between two nodes
    step = np.diff(nodes)
    upper = (first - nodes[:-1] * chance) / step
    weights = np.zeros_like(nodes)
    weights[:-1] += chance - upper
    weights[1:] += upper
    return weights
