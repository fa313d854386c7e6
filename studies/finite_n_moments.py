"""Which prediction of the mean output's error is right at the n one can run? (d = 50 Gaussian.)

python studies/finite_n_moments.py [finite_n_moments.png] [replicates]
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch

import attnlimit as al

TOKENS = al.Gaussian(dim=50, variance=0.1)
SIZES = [250, 1000, 4000]


def paper_head(scale: float) -> al.Head:
    """The Gaussian experiment's head: weights of variance 1/d, queries and keys times √scale."""
    torch.manual_seed(42)
    query, key, value = ((torch.randn(50, 50) / 50**0.5).double().numpy() for _ in range(3))
    return al.Head.from_projections(np.sqrt(scale) * query, np.sqrt(scale) * key, value)


def main(path: Path, replicates: int = 40) -> None:
    figure, panels = plt.subplots(1, 2, figsize=(9.6, 4.2), layout="constrained", sharex=True)
    line = np.unique(np.geomspace(200, 20_000, 12).astype(int))
    print("scale     H      n   measured            two-query  delta")
    for index, scale in enumerate((5, 20, 30, 50)):
        head, color = paper_head(scale), f"C{index}"
        h = al.horizon(head, TOKENS)
        measured = al.measure(head, TOKENS, "mean", SIZES, replicates, seed=0)
        predicted = al.predict(head, TOKENS, "mean", SIZES)
        delta = np.sqrt(np.trace(al.mean_covariance(head, TOKENS)))
        for k, n in enumerate(SIZES):
            print(
                f"{scale:5g}  {h:.3f} {n:6d}   {measured.root[k]:.4f} ± "
                f"{measured.root_stderr[k]:.4f}     {predicted.root[k]:.4f}     "
                f"{delta / np.sqrt(n):.4f}"
            )
        for panel, statistic in zip(panels, ("mean", "covariance"), strict=True):
            curve = al.predict(head, TOKENS, statistic, line)
            points = measured
            if statistic == "covariance":
                points = al.measure(head, TOKENS, statistic, SIZES[:2], replicates, seed=0)
            panel.loglog(line, curve.root, color=color, label=f"H = {h:.2f}")
            panel.errorbar(points.n, points.root, points.root_stderr, fmt="o", color=color, ms=4)
        if np.isfinite(delta):
            panels[0].loglog(line, delta / np.sqrt(line), ":", color=color, lw=1)
    panels[0].set_title("mean output: two-query law (lines), delta (dotted)")
    panels[1].set_title("covariance: exact bias and projected noise")
    panels[0].set_ylabel("root mean squared error")
    for panel in panels:
        panel.set_xlabel("number of tokens n")
        panel.grid(alpha=0.3)
    panels[0].legend(frameon=False, title="horizon")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    main(
        Path(sys.argv[1]) if len(sys.argv) > 1 else Path("gallery/finite_n_moments.png"),
        int(sys.argv[2]) if len(sys.argv) > 2 else 40,
    )
