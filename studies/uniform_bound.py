"""The worst query of a ball: the proved bound, the asymptotic constant and the measured supremum.

python studies/uniform_bound.py
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import attnlimit as al
from tables import write_tables

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


if __name__ == "__main__":
    head = al.Head(np.eye(3))
    rows = []
    for name, tokens in CASES.items():
        for radius in RADII:
            law = al.uniform_bound(head, tokens, radius, [N])
            mean, stderr, largest = measured_supremum(head, tokens, radius, law.worst)
            rows.append(
                {
                    "tokens": name,
                    "radius": radius,
                    "n": N,
                    "draws": DRAWS,
                    "constant": law.constant,
                    "measured": mean,
                    "stderr": stderr,
                    "largest": largest,
                    "bound": law.bound[0],
                    "trivial": bool(law.trivial[0]),
                }
            )
    table = pd.DataFrame(rows)
    write_tables({"bound-and-supremum": table})
