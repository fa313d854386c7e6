"""How far is attention over n tokens from its limit at one query? Exactly, from n = 2 to 10^12.

python studies/exact_law.py [exact_law.png]
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import attnlimit as al

SIGMAS = (0.5, 2.0, 4.0, 6.0, 10.0)
MEASURED = np.array([2, 8, 32, 128, 512, 2048])


def measure(sigma: float, n: int, replicates: int = 2000) -> tuple[float, float]:
    """Root mean squared error of Gamma_n along the query's direction, and its standard error."""
    keys = np.random.default_rng(n).standard_normal((replicates, n))
    weights = np.exp(sigma * (keys - keys.max(axis=1, keepdims=True)))
    squares = ((weights * keys).sum(axis=1) / weights.sum(axis=1) - sigma) ** 2
    root = np.sqrt(squares.mean())
    return root, squares.std() / np.sqrt(replicates) / (2 * root)


def main(path: Path) -> None:
    n = np.unique(np.geomspace(2, 10**12, 60).astype(np.int64))
    figure, axes = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
    print("sigma      n  exact   measured")
    for index, sigma in enumerate(SIGMAS):
        color = f"C{index}"
        exact = np.sqrt(al.gaussian_law(sigma, n).mse)
        axes.loglog(n, exact, color=color, label=f"σ = {sigma:g}")
        delta = np.sqrt(np.exp(sigma**2) * (1 + sigma**2) / n)
        axes.loglog(n, np.minimum(delta, 1e3), ":", color=color, lw=1)
        points = np.array([measure(sigma, int(k)) for k in MEASURED])
        axes.errorbar(MEASURED, points[:, 0], points[:, 1], fmt="o", color=color, ms=3.5)
        predicted = np.sqrt(al.gaussian_law(sigma, MEASURED).mse)
        for k, expected, (found, stderr) in zip(MEASURED, predicted, points, strict=True):
            print(f"{sigma:5g} {k:6d} {expected:6.4f} {found:6.4f} ± {stderr:.4f}")
    axes.set_ylim(1e-6, 30)
    axes.set_xlabel("number of tokens n")
    axes.set_ylabel("root mean squared error along the query")
    axes.set_title("Exact law (lines), delta method (dotted), 2,000 draws (dots)")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, title="score deviation", ncols=2, loc="lower left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("gallery/exact_law.png"))
