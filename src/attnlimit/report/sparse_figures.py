"""What does a plan for bags look like? Predicted errors against the number of labelled bags."""

from __future__ import annotations

import pandas as pd

from attnlimit.picture import FigureSpec, Panel, Series


def plan_figure(plan: pd.DataFrame, floor: float, recommendation: str) -> FigureSpec:
    """Predicted error of both poolings against the number of labelled bags."""
    series = (
        Series(plan["bags"], plan["mean_pooling"], "line", "mean pooling", "mean"),
        Series(plan["bags"], plan["attention"], "line", "attention", "attention"),
        Series(plan["bags"], [floor] * len(plan), "dotted", "best possible (Bayes)", "floor"),
    )
    panel = Panel(
        "predicted from the pilot",
        "labelled bags",
        "test error",
        series,
        y_scale="linear",
        y_limits=(0.0, 0.5),
    )
    return FigureSpec("How many labelled bags", (panel,), columns=1, caption=recommendation)
