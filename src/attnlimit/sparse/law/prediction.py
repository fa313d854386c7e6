"""What does a trained readout say of a fresh bag? The law of its prediction in each class."""

from __future__ import annotations

import numpy as np

from attnlimit.picture import REFERENCE, Panel, Series
from attnlimit.sparse.law.features import FeaturePoints
from attnlimit.sparse.law.saddle import Saddle

GRID = 301
REACH = 4.0
"""Standard deviations of a class that the picture shows on either side of its mean."""


def prediction_panel(points: FeaturePoints, at: Saddle, title: str) -> Panel:
    """Densities of the prediction, by class; what lies on the wrong side of 0 is the test error.

    Given what attention makes of a bag its prediction is normal, so each is a mixture of normals.
    """
    centre = points.label * points.margins(at.query_weight, at.signal_weight, at.bias)
    spread = points.rho * at.noise_scale
    drawn, ends = {}, []
    for label, name in ((1.0, "positive bags"), (-1.0, "negative bags")):
        here = points.label == label
        drawn[name] = points.weight[here], centre[here], spread[here]
        share, mean, noise = drawn[name]
        middle = np.average(mean, weights=share)
        width = np.sqrt(np.average((mean - middle) ** 2 + noise**2, weights=share))
        ends += [middle - REACH * width, middle + REACH * width]
    grid = np.linspace(min(ends), max(ends), GRID)
    series = []
    for name, (share, mean, noise) in drawn.items():
        heights = np.exp(-(((grid[:, None] - mean) / noise) ** 2) / 2) @ (share / noise)
        series.append(Series(grid, heights / np.sqrt(2 * np.pi), "line", name, name))
    top = max(float(np.max(one.y)) for one in series)
    edge = Series([0.0, 0.0], [0.0, top], "dotted", "decision", REFERENCE)
    return Panel(title, "prediction on a fresh bag", "density", [*series, edge], "linear", "linear")
