"""How sharp would a row of scores have to be for its softmax to listen to a few keys only?

N(g) counts the competitors of a row within a gap g of its largest score. The smallest beta with
N(g) <= e^{beta g} for all g is its critical inverse temperature: below it the largest weight is at
most one half however large the row, above it the number of keys that are heard is bounded
(docs/theory/critical-temperature.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result, table


@dataclass(frozen=True, eq=False)
class RowTemperatures(Result, Pictured):
    """Critical inverse temperatures of rows of scores, and where the rows' own, 1, stand."""

    critical: Array  # (R,): beta_c, for scores as they are given
    gap: Array  # (R,): where N(g) = e^{beta_c g}
    competitors: NDArray[np.int64]  # (R,): N there
    keys: NDArray[np.int64]  # (R,): visible ones
    top: Array  # (R,): the largest weight of the softmax
    participation: Array  # (R,): sum p^2
    entropy: Array  # (R,): of the weights, natural

    @property
    def ratio(self) -> Array:
        """Own inverse temperature over the critical one: beta / beta_c."""
        with np.errstate(divide="ignore"):
            return 1 / self.critical

    def headline(self) -> str:
        ratio = self.ratio
        return (
            f"critical temperature of {len(ratio)} rows: median β/β_c {np.median(ratio):.3g}, "
            f"{(ratio > 1).mean():.0%} above one"
        )

    def panel(self) -> Panel:
        """Largest weight against beta / beta_c, with what bounds it on either side of one."""
        shown = np.isfinite(self.ratio)
        below, above = np.array([0.05, 1.0]), np.geomspace(1.0, max(self.ratio[shown].max(), 2), 60)
        series = [
            Series(self.ratio[shown], self.top[shown], "points", "rows", "rows"),
            Series(below, [0.5, 0.5], "line", "at most", "at most"),
            Series(above, least_top(above), "dashed", "at least", "at least"),
        ]
        return Panel("gap counting", "β / β_c", "largest weight", series, "log", "linear")

    def to_frame(self) -> pd.DataFrame:
        """One row for each row."""
        return table(
            row=np.arange(len(self.critical)),
            keys=self.keys,
            critical=self.critical,
            ratio=self.ratio,
            gap=self.gap,
            competitors=self.competitors,
            top=self.top,
            participation=self.participation,
            entropy=self.entropy,
        )


def critical_temperature(scores: ArrayLike) -> RowTemperatures:
    """Critical inverse temperature of each row of `scores`, in one sort.

    beta_c = max log N(g) / g over gaps g > 0, N(g) the number of competitors within g of the
    largest score. It is infinite where two competitors or more tie with the largest, and zero where
    there is but one competitor.

    Parameters
    ----------
    scores : (R, N) or (N,) array or tensor
        What the softmax is taken of, as a head has it; -inf where a key is not visible.
    """
    rows = np.atleast_2d(np.asarray(scores, dtype=np.float64))
    if rows.ndim != 2 or rows.size == 0:
        raise BadInput(f"scores must be rows of numbers, but their shape is {rows.shape}.")
    if np.isnan(rows).any() or (rows == np.inf).any():
        raise BadInput("scores contain NaN or +inf; only -inf, for invisible keys, has a meaning.")
    visible = np.isfinite(rows).sum(axis=1)
    if not visible.all():
        raise BadInput(f"row {int(visible.argmin())} of the scores has no visible key.")
    gaps = np.sort(rows.max(axis=1, keepdims=True) - rows, axis=1)
    weights = np.exp(-gaps)
    total = weights.sum(axis=1)
    p = weights / total[:, None]
    mean_gap = (p * np.where(np.isfinite(gaps), gaps, 0.0)).sum(axis=1)
    best = np.zeros(len(rows), dtype=np.int64)  # a lone key has no competitor
    slope = np.zeros((len(rows), 1))
    if rows.shape[1] > 1:
        counts = np.log(np.arange(1, rows.shape[1]))
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.nan_to_num(counts / gaps[:, 1:], nan=0.0, posinf=np.inf)
        best = slope.argmax(axis=1) + 1
    each = np.arange(len(rows))
    return RowTemperatures(
        critical=slope.max(axis=1),
        gap=gaps[each, best],
        competitors=best,
        keys=visible,
        top=1 / total,
        participation=(p**2).sum(axis=1),
        entropy=np.log(total) + mean_gap,
    )


def most_top(ratio: ArrayLike, competitors: ArrayLike) -> Array:
    """Return what the largest weight is at most, where beta / beta_c is at most one."""
    r, count = np.asarray(ratio, dtype=np.float64), np.asarray(competitors, dtype=np.float64)
    return np.asarray(np.where(r <= 1, 1 / (1 + count ** np.maximum(1 - r, 0.0)), 1.0))


def least_top(ratio: ArrayLike) -> Array:
    """Return what the largest weight is at least, where beta / beta_c is above one."""
    r = np.asarray(ratio, dtype=np.float64)
    return np.asarray(np.where(r > 1, (r - 1) / (2 * r - 1), 0.0))


def most_entropy(ratio: ArrayLike) -> Array:
    """Return what the entropy of the weights is at most, where beta / beta_c is above one."""
    r = np.asarray(ratio, dtype=np.float64)
    excess = np.where(r > 1, r / np.maximum(r - 1, 1e-300), np.inf)
    return np.asarray(np.log1p(excess) + excess**2)
