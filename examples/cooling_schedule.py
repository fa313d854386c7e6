"""How sharp should attention be to find the furthest of n tokens? The best lam, and schedules.

python examples/cooling_schedule.py [cooling_schedule.png]
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import attnlimit as al


def main(path: Path) -> None:
    sizes = 10 ** np.arange(1, 13, dtype=np.int64)
    figure, panels = plt.subplots(1, 2, figsize=(9.6, 4.2), layout="constrained")
    for axes, dim in zip(panels, (5, 50), strict=True):
        head, tokens, query = al.Head(np.eye(dim)), al.Sphere(dim), np.eye(dim)[0]
        best = al.best_temperature(head, tokens, query, sizes)
        axes.loglog(sizes, np.sqrt(best.hardmax_mse), color="0.5", label="hard maximum, λ = ∞")
        for kind, label, style in (
            ("sqrt-log", "√log n", "tab:red"),
            ("log", "log n", "tab:orange"),
        ):
            found = al.schedule_error(head, tokens, query, sizes, kind=kind)
            axes.loglog(sizes, found.root, color=style, label=f"λ = {found.constant:.3g} {label}")
        axes.loglog(sizes, best.root, "o", color="tab:blue", ms=4, label="best λ for each n")
        axes.loglog(
            sizes,
            best.root[-1] * (sizes / sizes[-1]) ** (-2 / (dim + 1)),
            ":",
            color="tab:blue",
            label=f"slope -2/(d+1) = -2/{dim + 1}",
        )
        axes.set_title(f"uniform tokens on the sphere, d = {dim}")
        axes.set_xlabel("number of tokens n")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8.5, loc="lower left")
    panels[0].set_ylabel("root mean squared distance to the exposed point")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("gallery/cooling_schedule.png"))
