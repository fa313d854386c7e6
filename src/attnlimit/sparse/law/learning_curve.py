"""What does training the readout give as the number of bags grows?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import pandas as pd

from attnlimit.checks import Array
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result
from attnlimit.sparse.law.readout import FINE, LossLike, Readout, readout
from attnlimit.sparse.task import SparseTask


@dataclass(frozen=True)
class LearningCurve(Result, Pictured, Sequence[Readout]):
    """What training the readout gives at each of several numbers of bags."""

    readouts: tuple[Readout, ...]

    @overload
    def __getitem__(self, index: int) -> Readout: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Readout]: ...
    def __getitem__(self, index: int | slice) -> Readout | Sequence[Readout]:
        """The readout at one alpha, or at some."""
        return self.readouts[index]

    def __len__(self) -> int:
        return len(self.readouts)

    def headline(self) -> str:
        """What was trained."""
        return f"{self[0].model} readout, {self[0].loss} loss, ridge {self[0].ridge:g}"

    def to_frame(self) -> pd.DataFrame:
        """One row for each alpha."""
        return pd.concat([one.to_frame() for one in self], ignore_index=True)

    def panel(self) -> Panel:
        """Test and training error against the number of bags per dimension."""
        model, alphas = self[0].model, [one.alpha for one in self]
        test = Series(alphas, [one.test_error for one in self], "line", f"{model}: test", model)
        train = [one.train_error for one in self]
        train_line = Series(alphas, train, "dotted", f"{model}: training", model)
        title, x_label = "learning curve", "bags per dimension α"
        return Panel(title, x_label, "error", [test, train_line], "log", "linear")


def learning_curve(
    task: SparseTask,
    alphas: Sequence[float] | Array,
    model: str = "attention",
    *,
    cosine: float = 1.0,
    sharpness: float = 1.0,
    loss: LossLike = "logistic",
    ridge: float = 1e-2,
    log2_points: int = FINE,
) -> LearningCurve:
    """`readout` at every alpha, each started from its neighbour."""
    results: list[Readout] = []
    for alpha in alphas:
        found = readout(
            task,
            float(alpha),
            model,
            cosine=cosine,
            sharpness=sharpness,
            loss=loss,
            ridge=ridge,
            start=results[-1] if results else None,
            log2_points=log2_points,
        )
        results.append(found)
    return LearningCurve(tuple(results))
