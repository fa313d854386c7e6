"""How sharp would a row of scores have to be for its softmax to listen to a few keys only?

N(g) counts the competitors of a row within a gap g of its largest score. The least beta with
N(g) <= e^{beta g} for all g is its critical inverse temperature: up to it the largest weight is at
most one half, above it the weights and their entropy are bounded however long the row
(docs/theory/critical-temperature.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.picture import REFERENCE, Panel, Series
from attnlimit.result import Pictured, Result, table


@dataclass(frozen=True, eq=False)
class RowTemperatures(Result, Pictured):
    """Critical inverse temperatures of rows of scores, and where the rows' own, 1, stand."""

    critical: Array  # (R,): beta_c, for scores as they are given
    gap: Array  # (R,): where N(g) = few e^{beta_c g}
    competitors: NDArray[np.int64]  # (R,): N there
    keys: NDArray[np.int64]  # (R,): visible ones
    top: Array  # (R,): the largest weight of the softmax
    participation: Array  # (R,): sum p^2
    entropy: Array  # (R,): of the weights, natural
    few: float = 1.0

    @property
    def ratio(self) -> Array:
        """Own inverse temperature over the critical one: beta / beta_c."""
        with np.errstate(divide="ignore"):
            return 1 / self.critical

    @property
    def most_top(self) -> Array:
        """What the largest weight is at most: 1/(1 + few) or less where the ratio is up to one."""
        room = np.maximum(1 - self.ratio, 0.0)
        heard = self.few * (np.maximum(self.competitors, 1) / self.few) ** room
        return np.where(self.ratio <= 1, 1 / (1 + heard), 1.0)

    @property
    def least_top(self) -> Array:
        """What the largest weight is at least; more than nothing where the ratio is above one."""
        return _least_top(self.ratio, self.few)

    @property
    def most_entropy(self) -> Array:
        """What the entropy is at most: bounded, however many keys, where the ratio is above one."""
        excess = _excess(self.ratio)
        return np.log1p(self.few * excess) + self.few * excess**2

    def headline(self) -> str:
        ratio = self.ratio
        return (
            f"critical temperature of {len(ratio)} rows: median β/β_c {np.median(ratio):.3g}, "
            f"{(ratio > 1).mean():.0%} above one"
        )

    def panel(self) -> Panel:
        """Largest weight against beta / beta_c, with what bounds it on either side of one."""
        shown = np.isfinite(self.ratio)
        above = np.geomspace(1.0, max(self.ratio[shown].max(initial=2.0), 2.0), 60)
        lowest = self.ratio[shown].min(initial=0.5)
        series = [
            Series(self.ratio[shown], self.top[shown], "points", "rows", "rows"),
            Series([lowest, 1.0], [1 / (1 + self.few)] * 2, "line", "at most", REFERENCE),
            Series(above, _least_top(above, self.few), "dashed", "at least", REFERENCE),
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


def critical_temperature(scores: ArrayLike, *, few: float = 1.0) -> RowTemperatures:
    """Critical inverse temperature of each row of `scores`, in one sort.

    beta_c = max log(N(g) / few) / g over gaps g, N(g) the number of competitors within g of the
    largest score. It is infinite where more than `few` competitors tie with the largest, and zero
    where there are no more than `few` at all.

    Parameters
    ----------
    scores : (R, N) or (N,) array or tensor
        What the softmax is taken of, as a head has it; -inf where a key is not visible.
    few : float
        How many competitors are not yet a crowd; more make beta_c smaller and steadier.

    Examples
    --------
    >>> import attnlimit as al
    >>> al.critical_temperature([[3.0, 2.0, 1.0, 0.0]]).critical.round(3)
    array([0.366])
    """
    crowd = checks.positive(few, "few")
    rows = np.atleast_2d(checks.floats(scores, "scores"))
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
        counts = np.maximum(np.log(np.arange(1, rows.shape[1]) / crowd), 0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
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
        few=crowd,
    )


def _excess(ratio: Array) -> Array:
    """r / (r - 1), by which the sum of e^{-beta g} is bounded where N(g) <= e^{beta_c g}."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        above = np.where(np.isinf(ratio), 1.0, ratio / (ratio - 1))
    return np.where(ratio > 1, above, np.inf)


def _least_top(ratio: Array, few: float) -> Array:
    return 1 / (1 + few * _excess(ratio))
