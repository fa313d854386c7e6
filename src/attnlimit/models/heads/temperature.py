"""Is each head sharper than its own scores' critical temperature? Gap counting of its rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from attnlimit.checks import Array
from attnlimit.models.capture.captured import Captured, CapturedHead
from attnlimit.models.heads.profile import score_deviations
from attnlimit.picture import REFERENCE, Panel, Series
from attnlimit.result import Pictured, Result
from attnlimit.theory.sharp.gap_counting import critical_temperature


@dataclass(frozen=True, eq=False)
class HeadTemperatures(Result, Pictured):
    """Where the queries of each head stand, against the critical temperature of their rows."""

    rows: pd.DataFrame

    def headline(self) -> str:
        """Say how many heads are beyond their critical temperature."""
        above = (self.rows["ratio"] > 1).sum()
        return (
            f"β/β_c of {len(self.rows)} heads, medians over queries: "
            f"{self.rows['ratio'].min():.2g} to {self.rows['ratio'].max():.2g}, {above} above one"
        )

    def panel(self) -> Panel:
        """Effective keys of each head against its beta / beta_c."""
        x, y = self.rows["ratio"], self.rows["effective_tokens"]
        series = [
            Series(x, y, "points", "heads", "heads"),
            Series([1.0, 1.0], [1.0, y.max()], "dotted", "critical", REFERENCE),
        ]
        return Panel("heads by gap counting", "β / β_c (median)", "effective keys", series)

    def to_frame(self) -> pd.DataFrame:
        """One row for each head: medians over its queries, and the share `above` the critical."""
        return self.rows.copy()


def temperatures(capture: Captured, *, few: float = 1.0) -> HeadTemperatures:
    """Gap counting of every head: `ratio` is the median of beta / beta_c over its queries.

    Beside it are `above`, the share of queries beyond their critical temperature;
    `gaussian_ratio`, the median of sigma / sqrt(2 log n), which is what it would be for normal
    scores; `effective_tokens` 1 / sum p^2 and the `entropy` of the weights, both medians.

    Parameters
    ----------
    few : float
        How many competitors are not yet a crowd, as in `critical_temperature`.
    """
    return HeadTemperatures(pd.DataFrame([head_temperature(head, few) for head in capture]))


def head_temperature(head: CapturedHead, few: float = 1.0) -> dict[str, float]:
    """One head's row of `temperatures`."""
    blocks: list[tuple[Array, ...]] = []
    for _, scores in head.blocks():
        found = critical_temperature(scores.numpy(), few=few)
        deviation, edge = score_deviations(scores)
        blocks.append((found.ratio, deviation / edge, 1 / found.participation, found.entropy))
    ratio, gaussian, effective, entropy = map(np.concatenate, zip(*blocks, strict=True))
    return {
        "layer": head.layer,
        "head": head.head,
        "ratio": float(np.median(ratio)),
        "above": float((ratio > 1).mean()),
        "gaussian_ratio": float(np.median(gaussian)),
        "effective_tokens": float(np.median(effective)),
        "entropy": float(np.median(entropy)),
    }
