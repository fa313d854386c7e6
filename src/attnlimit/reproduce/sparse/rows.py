"""What do the sparse experiments share? Predictions beside what was drawn, as rows and columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from attnlimit.reproduce.compare import COMPARED, OWN, ROUNDING, SKEWNESS, shared_scatter
from attnlimit.reproduce.experiment import Config, Shard
from attnlimit.reproduce.rows import groups
from attnlimit.sparse import SparseTask
from attnlimit.sparse.train.simulate import Measured

NAMES = {"attention": "attention", "pooled": "mean pooling", "vectorized": "all tokens"}
"""The classifiers, as figures call them."""
BAGS = "bags per dimension, alpha = n/d"
FINITE = 3.0
"""What a limit of large d misses at finite d, times d."""


def shared(config: Config, *own: str) -> Shard:
    """Return the settings that every shard has: all but its `own`, and the seed."""
    return {name: value for name, value in config.items() if name not in (*own, "seed")}


def task_of(shard: Shard) -> SparseTask:
    """Return the task whose sizes are settings of the shard."""
    return SparseTask(shard["length"], shard["signals"], shard["strength"], shard["prior"])


def sizes(shard: Shard, seed: np.random.SeedSequence) -> dict[str, Any]:
    """Return how much a shard draws, and from which seed, as `simulate_...` take it."""
    number = int(seed.generate_state(1, np.uint64)[0])
    return {"dim": shard["dim"], "replicates": shard["replicates"], "seed": number}


def paired(
    labels: dict[str, Any], predicted: dict[str, float], measured: Measured | None = None
) -> pd.DataFrame:
    """One row for each predicted quantity; what is measured is NaN where nothing was drawn."""
    table = pd.DataFrame({**labels, "quantity": list(predicted), "predicted": predicted.values()})
    found = (measured.mean, measured.stderr, measured.skewness) if measured else ({}, {}, {})
    names = ("measured", "stderr", SKEWNESS)
    drawn = {name: table["quantity"].map(of) for name, of in zip(names, found, strict=True)}
    return table.assign(**drawn).astype(dict.fromkeys((*COMPARED, SKEWNESS), float))


def finite(rows: pd.DataFrame, dim: float | pd.Series[int]) -> pd.DataFrame:
    """Return rows with the predictions' own error: they are of the limit of large d.

    What they miss is of the order of 1/d, `FINITE` times that of an error's p (1 - p) or of a
    loss; that size is a fit, cautious for a query that is given and too small for one that took
    its steps on few bags (studies/finite_dimension.py). A share of bags that no draw could show is
    none.
    """
    share = rows["quantity"].str.endswith("error")
    value = rows["predicted"].mask(share & (rows["predicted"] < ROUNDING), 0.0)
    own = FINITE * value.where(~share, value * (1 - value)) / dim
    return rows.assign(**{"predicted": value, OWN: own})


def at_size(rows: pd.DataFrame, dim: int, draws: int) -> pd.DataFrame:
    """Return rows with both their errors; nothing is measured, and nothing missed, at size 0.

    Measurements of a kind share what their draws show of their scatter.
    """
    kinds = [name for name in ("quantity", "model") if name in rows]
    spread = pd.concat(
        shared_scatter(part["measured"], part["stderr"], draws) for _, part in rows.groupby(kinds)
    )
    return finite(rows, dim or np.inf).assign(stderr=spread)


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
            row[f"{name} stderr"] = cell.stderr
        rows.append(row)
        drawn.append(part["measured"].notna().any())
    table = pd.DataFrame(rows)
    return (table[drawn] if any(drawn) else table).dropna(axis="columns", how="all")
