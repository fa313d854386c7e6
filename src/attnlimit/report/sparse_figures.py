"""What do the sparse commands draw? Learning curves and plans, as figure descriptions."""

from __future__ import annotations

import textwrap

import pandas as pd

from attnlimit.report.spec import FigureSpec, Panel, Series

NAMES = {"attention": "attention", "pooled": "mean pooling", "vectorized": "all tokens"}


def curves_figure(curves: pd.DataFrame, title: str) -> FigureSpec:
    """Test and training error against alpha; `curves` has the columns of `Readout.to_frame`.

    Columns test_error_measured and test_error_stderr, if there, are drawn as points.
    """
    panels = []
    for quantity, label in (("test_error", "test error"), ("train_error", "training error")):
        series = []
        for model in dict.fromkeys(curves["model"]):
            part = curves[curves["model"] == model]
            style = "line" if len(part) > 1 else "points"
            series.append(Series(part["alpha"], part[quantity], style, NAMES[model], model))
            if f"{quantity}_measured" in part:
                series.append(
                    Series(
                        part["alpha"],
                        part[f"{quantity}_measured"],
                        "points",
                        None,
                        model,
                        part[f"{quantity}_stderr"],
                    )
                )
        panels.append(
            Panel(label, "bags per dimension, alpha = n/d", label, tuple(series), y_scale="linear")
        )
    caption = "Lines: exact limit."
    if "test_error_measured" in curves:
        caption += " Points: trained on drawn bags, with standard errors."
    return FigureSpec(title, tuple(panels), caption=caption)


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
    caption = "\n".join(textwrap.wrap(recommendation, 75))
    return FigureSpec("How many labelled bags", (panel,), columns=1, caption=caption)
