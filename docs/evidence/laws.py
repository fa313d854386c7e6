"""One query, the worst query, and tokens without a limit: studies of laws against draws."""

from __future__ import annotations

import numpy as np
import pandas as pd

from evidence.blocks import table
from evidence.cells import measured, number, numbers, once, pairs, setting
from evidence.studies import Study


@table("python studies/exact_law.py", says="against measured")
def exact_law_drawn(study: Study) -> pd.DataFrame:
    """The error along the query at three n."""
    rows = study.table[study.table["n"].isin([2, 128, 2048])]
    return pd.DataFrame(
        {
            "σ": once(map(setting, rows["sigma"])),
            "n": rows["n"],
            "exact": numbers(rows["predicted"], 4),
            f"measured, {rows['draws'].iloc[0]:,} draws": pairs(rows),
        }
    )


@table("python studies/uniform_bound.py")
def bound_and_supremum(study: Study) -> pd.DataFrame:
    """The largest error over a ball: measured, its constant, its bound."""
    rows = study.table
    constant = rows["constant"] / np.sqrt(rows["n"])
    trivial = rows["trivial"].map({True: " (trivial)", False: ""})
    return pd.DataFrame(
        {
            "tokens": once(rows["tokens"]),
            "R": rows["radius"].map(setting),
            "C(R)/√n": numbers(constant),
            "measured mean": pairs(rows),
            f"largest of {rows['draws'].iloc[0]}": numbers(rows["largest"]),
            "bound": pd.Series(numbers(rows["bound"])) + trivial,
            "over C(R)/√n": numbers(rows["bound"] / constant, 2),
        }
    )


@table("python studies/heavy_tails.py")
def participation_without_limit(study: Study) -> pd.DataFrame:
    """E Σp² at four n, with and without a limit."""
    rows = study.table[study.table["n"].isin([16, 64, 1024, 65536])]
    return pd.DataFrame(
        {
            "tokens": once(rows["tokens"]),
            "n": rows["n"],
            f"E Σp², {rows['draws'].iloc[0]} draws": [
                measured(*both) for both in rows[["measured", "stderr"]].to_numpy(float)
            ],
            "exact law": [number(one) or "no limit" for one in rows["exact"]],
        }
    )
