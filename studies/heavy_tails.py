"""Attention over tokens with no infinite-token limit: the largest score takes everything.

Draws the expected participation of the weights, E sum p^2, against n for four token distributions
at one query: it falls with n where the limit exists, and stays of order one where it does not.

    python studies/heavy_tails.py
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import attnlimit as al
from tables import write_tables

SIZES = 2 ** np.arange(4, 18, 2)
DRAWS = 200
CASES = (
    ("Gaussian, scores of deviation 1", al.Gaussian(dim=1), 1.0),
    ("Laplace well below its bound, t = 1/(5b)", al.Laplace(1), 0.2),
    ("Laplace past its bound, t = 2/b", al.Laplace(1), 2.0),
    ("Student, 3 degrees of freedom", al.Student(1, df=3.0), 1 / np.sqrt(3)),
)


def exact(tokens: al.Tokens, scale: float) -> np.ndarray:
    """The same by the exact law, where there is a limit."""
    try:
        return al.pointwise_error(al.Head([[scale]]), tokens, [1.0], SIZES).participation[0]
    except al.NoLimitError:
        return np.full(len(SIZES), np.nan)


if __name__ == "__main__":
    parts = []
    for name, tokens, scale in CASES:
        drawn = al.measure(al.Head([[scale]]), tokens, "participation", SIZES, DRAWS, x=[1.0])
        columns = {"tokens": name, "n": SIZES, "draws": DRAWS}
        columns |= {"measured": drawn.value, "stderr": drawn.stderr}
        parts.append(pd.DataFrame(columns | {"exact": exact(tokens, scale)}))
    table = pd.concat(parts)
    write_tables({"participation-without-limit": table})
