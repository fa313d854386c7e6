"""Which prediction of the mean output's error is right at the n one can run? (d = 50 Gaussian.)

python studies/finite_n_moments.py [replicates]
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import attnlimit as al
from attnlimit.reproduce.temperatures import paper_head
from kept import keep, keep_picture

TOKENS = al.Gaussian(dim=50, variance=0.1)
SCALES = (5, 20, 30, 50)
SIZES = [250, 1000, 4000]


def compared(scale: float, replicates: int) -> pd.DataFrame:
    """Root mean square errors of the mean: measured, by the two-query law, by the delta method."""
    head = paper_head(50, scale)
    measured = al.measure(head, TOKENS, "mean", SIZES, replicates, seed=0)
    predicted = al.predict(head, TOKENS, "mean", SIZES)
    delta = np.sqrt(np.trace(al.mean_covariance(head, TOKENS)))
    columns = {
        "scale": scale,
        "horizon": al.horizon(head, TOKENS),
        "n": SIZES,
        "draws": replicates,
        "measured": measured.root,
        "stderr": measured.root_stderr,
        "predicted": predicted.root,
        "prediction_error": predicted.root_numerical_error,
        "delta": delta / np.sqrt(SIZES),
    }
    return pd.DataFrame(columns)


def draw(found: pd.DataFrame, replicates: int) -> Figure:
    """Both statistics over n, predicted and measured."""
    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True)
    line = np.unique(np.geomspace(200, 20_000, 12).astype(int))
    for index, (scale, rows) in enumerate(found.groupby("scale")):
        head, color = paper_head(50, scale), f"C{index}"
        squares = al.measure(head, TOKENS, "covariance", SIZES[:2], replicates, seed=0)
        drawn = {
            "mean": (rows["n"], rows["measured"], rows["stderr"]),
            "covariance": (squares.n, squares.root, squares.root_stderr),
        }
        for panel, (statistic, points) in zip(panels, drawn.items(), strict=True):
            curve = al.predict(head, TOKENS, statistic, line)
            panel.loglog(line, curve.root, color=color, label=f"H = {rows['horizon'].iloc[0]:.2f}")
            panel.errorbar(*points, fmt="o", color=color, ms=4)
        last = rows.iloc[-1]
        if np.isfinite(last["delta"]):
            delta = last["delta"] * np.sqrt(last["n"] / line)
            panels[0].loglog(line, delta, ":", color=color, lw=1)
    panels[0].set_title("mean output: two-query law (lines), delta (dotted)")
    panels[1].set_title("covariance: predicted (lines), measured (dots)")
    panels[0].set_ylabel("root mean squared error")
    for panel in panels:
        panel.set_xlabel("number of tokens n")
        panel.grid(alpha=0.3)
    panels[0].legend(frameon=False, title="horizon")
    return figure


if __name__ == "__main__":
    replicates = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    found = pd.concat([compared(scale, replicates) for scale in SCALES])
    keep(found)
    keep_picture(draw(found, replicates))
