"""The worst query of a ball: the proved bound, the asymptotic constant and the measured supremum.

python studies/uniform_bound.py
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import attnlimit as al
from kept import keep, keep_picture

N = 10_000
DRAWS = 20
RADII = (0.5, 1.0, 2.0, 3.0)
POINTS = al.Sphere(3).sample(50, np.random.default_rng(0))
CASES = {
    "Sphere(3)": al.Sphere(3),
    "Cube(3)": al.Cube(3),
    "Gaussian(dim=3, variance=0.3)": al.Gaussian(dim=3, variance=0.3),
    "Empirical, 50 points of the sphere": al.Empirical(POINTS),
    "Mixture, half Sphere(3), half Cube(3)": al.Mixture([0.5, 0.5], [al.Sphere(3), al.Cube(3)]),
}


def measured_supremum(
    head: al.Head, tokens: al.Tokens, radius: float, worst: np.ndarray
) -> tuple[float, float, float]:
    """Mean, standard error and largest of sup |Gamma_n - Gamma| over 1000 queries on the rim."""
    rng = np.random.default_rng(int(10 * radius))
    rim = rng.standard_normal((1000, head.query_dim))
    rim *= radius / np.linalg.norm(rim, axis=1, keepdims=True)
    queries = np.concatenate([rim, worst[None], -worst[None]])
    limits = al.limit(head, tokens)(queries)
    drawn = np.array(
        [
            np.linalg.norm(head(queries, tokens.sample(N, rng)) - limits, axis=1).max()
            for _ in range(DRAWS)
        ]
    )
    return drawn.mean(), drawn.std(ddof=1) / np.sqrt(DRAWS), drawn.max()


def draw(found: pd.DataFrame) -> Figure:
    """Bound, measurement and constant over the radius, a panel for each measure."""
    figure = Figure(figsize=(16, 3.9), layout="constrained")
    panels = figure.subplots(1, len(CASES), sharey=True)
    for axes, name in zip(panels, CASES, strict=True):
        rows = found[found["tokens"] == name]
        axes.semilogy(rows["radius"], rows["bound"], "s-", label="proved bound, 95 %")
        axes.errorbar(
            rows["radius"], rows["measured"], rows["stderr"],
            fmt="o", capsize=3, label="measured supremum",
        )  # fmt: skip
        axes.semilogy(rows["radius"], rows["constant"] / np.sqrt(N), "--", label="C(R)/√n")
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("radius R of the ball of queries")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel(f"sup |Γₙ - Γ| at n = {N}")
    panels[0].legend(frameon=False)
    return figure


if __name__ == "__main__":
    head = al.Head(np.eye(3))
    rows = []
    for name, tokens in CASES.items():
        for radius in RADII:
            told = al.uniform_bound(head, tokens, radius, [N])
            mean, stderr, largest = measured_supremum(head, tokens, radius, told.worst)
            rows.append(
                {
                    "tokens": name,
                    "radius": radius,
                    "n": N,
                    "draws": DRAWS,
                    "constant": told.constant,
                    "measured": mean,
                    "stderr": stderr,
                    "largest": largest,
                    "bound": told.bound[0],
                    "trivial": bool(told.trivial[0]),
                }
            )
    found = pd.DataFrame(rows)
    keep(found)
    keep_picture(draw(found))
