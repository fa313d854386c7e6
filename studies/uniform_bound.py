"""The worst query of a ball: the proved bound, the asymptotic constant and the measured supremum.

python studies/uniform_bound.py [uniform_bound.png]
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import attnlimit as al

N = 10_000
REPLICATES = 20


def measured_supremum(
    head: al.Head, tokens: al.Tokens, radius: float, worst: np.ndarray, seed: int
) -> tuple[float, float, float]:
    """Mean, standard error and largest of sup |Gamma_n - Gamma| over 1000 queries on the rim."""
    rng = np.random.default_rng(seed)
    rim = rng.standard_normal((1000, head.query_dim))
    rim *= radius / np.linalg.norm(rim, axis=1, keepdims=True)
    queries = np.concatenate([rim, worst[None], -worst[None]])
    limits = al.limit(head, tokens)(queries)
    drawn = np.array(
        [
            np.linalg.norm(head(queries, tokens.sample(N, rng)) - limits, axis=1).max()
            for _ in range(REPLICATES)
        ]
    )
    return drawn.mean(), drawn.std(ddof=1) / np.sqrt(REPLICATES), drawn.max()


def main(path: Path) -> None:
    head = al.Head(np.eye(3))
    radii = [0.5, 1.0, 2.0, 3.0]
    cases = {
        "Sphere(3)": al.Sphere(3),
        "Cube(3)": al.Cube(3),
        "Gaussian(dim=3, variance=0.3)": al.Gaussian(dim=3, variance=0.3),
    }
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.9), layout="constrained", sharey=True)
    print("| tokens | R | C(R) | C(R)/√n | measured mean ± s.e. | largest of 20 | bound |")
    print("|---|---|---|---|---|---|---|")
    for axes, (name, tokens) in zip(panels, cases.items(), strict=True):
        results = [al.uniform_bound(head, tokens, radius, [N]) for radius in radii]
        drawn = [
            measured_supremum(head, tokens, radius, result.worst, seed=int(10 * radius))
            for radius, result in zip(radii, results, strict=True)
        ]
        for radius, result, (mean, error, largest) in zip(radii, results, drawn, strict=True):
            print(
                f"| {name} | {radius:g} | {result.constant:.3f} | {result.constant / 100:.4f} "
                f"| {mean:.4f} ± {error:.4f} | {largest:.4f} | {result.bound[0]:.4f}"
                f"{' (trivial)' if result.trivial[0] else ''} |"
            )
        mean, error, _ = np.array(drawn).T
        axes.semilogy(radii, [r.bound[0] for r in results], "s-", label="proved bound, 95 %")
        axes.errorbar(radii, mean, error, fmt="o", capsize=3, label="measured supremum")
        axes.semilogy(radii, [r.constant / np.sqrt(N) for r in results], "--", label="C(R)/√n")
        axes.set_title(name)
        axes.set_xlabel("radius R of the ball of queries")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel(f"sup |Γₙ - Γ| at n = {N}")
    panels[0].legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("gallery/uniform_bound.png"))
