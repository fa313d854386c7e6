"""What do the sparse experiments share? Predictions beside what was drawn, as rows and columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from attnlimit.reproduce.rows import groups
from attnlimit.sparse.train.simulate import Measured

NAMES = {"attention": "attention", "pooled": "mean pooling", "vectorized": "all tokens"}
"""The classifiers, as figures call them."""
BAGS = "bags per dimension, alpha = n/d"


def seed_number(seed: np.random.SeedSequence) -> int:
    """Return a whole number that stands for `seed`."""
    return int(seed.generate_state(1, np.uint64)[0])


def paired(
    labels: dict[str, Any], predicted: dict[str, float], measured: Measured | None = None
) -> pd.DataFrame:
    """One row for each predicted quantity; measured and stderr are NaN where nothing was drawn."""
    mean, stderr = (measured.mean, measured.stderr) if measured else ({}, {})
    rows = [
        {
            **labels,
            "quantity": name,
            "predicted": float(value),
            "measured": mean.get(name, np.nan),
            "stderr": stderr.get(name, np.nan),
        }
        for name, value in predicted.items()
    ]
    return pd.DataFrame(rows)


def side_by_side(curves: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """One row for each value of `keys`: every quantity, and beside it what was measured.

    Where something was measured, only those rows; else every prediction.
    """
    rows, drawn = [], []
    for values, part in groups(curves, *keys):
        row = dict(zip(keys, values if len(keys) > 1 else [values], strict=True))
        for cell in part.itertuples():
            name = str(cell.quantity)
            row |= {name: cell.predicted, f"{name} measured": cell.measured}
            row[f"{name} +-"] = cell.stderr
        rows.append(row)
        drawn.append(part["measured"].notna().any())
    table = pd.DataFrame(rows)
    return (table[drawn] if any(drawn) else table).dropna(axis="columns", how="all")
