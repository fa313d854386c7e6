"""The exact law of attention over n tokens at one query, against draws.

python studies/exact_law.py
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import attnlimit as al
from tables import write_tables

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


if __name__ == "__main__":
    rows = []
    for sigma in SIGMAS:
        exact = np.sqrt(al.gaussian_law(sigma, MEASURED).mse)
        for n, expected in zip(MEASURED.tolist(), exact.tolist(), strict=True):
            root, stderr = measure(sigma, n)
            rows.append((sigma, n, DRAWS, expected, root, stderr))
    columns = ["sigma", "n", "draws", "predicted", "measured", "stderr"]
    table = pd.DataFrame(rows, columns=columns)
    write_tables({"exact-law-drawn": table})
