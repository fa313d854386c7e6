"""How far is attention over n tokens from its limit at one query? Exactly, and by draws.

python studies/exact_law.py
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import attnlimit as al
from kept import keep, keep_picture

SIGMAS = (0.5, 2.0, 4.0, 6.0, 10.0)
MEASURED = np.array([2, 8, 32, 128, 512, 2048])
DRAWS, BLOCK = 100_000, 2_000


def measure(sigma: float, n: int) -> tuple[float, float]:
    """Root mean squared error of Gamma_n along the query's direction, and its standard error."""
    rng = np.random.default_rng(n)
    squares = []
    for _ in range(DRAWS // BLOCK):
        keys = rng.standard_normal((BLOCK, n))
        weights = np.exp(sigma * (keys - keys.max(axis=1, keepdims=True)))
        squares.append(((weights * keys).sum(axis=1) / weights.sum(axis=1) - sigma) ** 2)
    drawn = np.concatenate(squares)
    root = np.sqrt(drawn.mean())
    return root, drawn.std() / np.sqrt(DRAWS) / (2 * root)


def draw(found: pd.DataFrame) -> Figure:
    """The exact law from n = 2 to 10^12, the delta method, and what was measured."""
    n = np.unique(np.geomspace(2, 10**12, 60).astype(np.int64))
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.subplots()
    for index, (sigma, points) in enumerate(found.groupby("sigma")):
        color = f"C{index}"
        exact = np.sqrt(al.gaussian_law(sigma, n).mse)
        axes.loglog(n, exact, color=color, label=f"σ = {sigma:g}")
        delta = np.sqrt(np.exp(sigma**2) * (1 + sigma**2) / n)
        axes.loglog(n, np.minimum(delta, 1e3), ":", color=color, lw=1)
        axes.errorbar(
            points["n"], points["measured"], points["stderr"], fmt="o", color=color, ms=3.5
        )
    axes.set_ylim(1e-6, 30)
    axes.set_xlabel("number of tokens n")
    axes.set_ylabel("root mean squared error along the query")
    axes.set_title(f"Exact law (lines), delta method (dotted), {DRAWS:,} draws (dots)")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, title="score deviation", ncols=2, loc="lower left")
    return figure


if __name__ == "__main__":
    rows = []
    for sigma in SIGMAS:
        exact = np.sqrt(al.gaussian_law(sigma, MEASURED).mse)
        for n, expected in zip(MEASURED.tolist(), exact.tolist(), strict=True):
            root, stderr = measure(sigma, n)
            rows.append((sigma, n, DRAWS, expected, root, stderr))
    columns = ["sigma", "n", "draws", "predicted", "measured", "stderr"]
    found = pd.DataFrame(rows, columns=columns)
    keep(found)
    keep_picture(draw(found))
