"""Rows of sparse experiments: predictions beside simulated values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from attnlimit.constants import FINITE
from attnlimit.reproduce.compare import COMPARED, OWN, ROUNDING, SKEWNESS, groups, shared_scatter
from attnlimit.reproduce.experiment import Config, Shard
from attnlimit.sparse.task import SparseTask
from attnlimit.sparse.training import Measured

NAMES = {"attention": "attention", "pooled": "mean pooling", "vectorized": "all tokens"}
"""The classifiers, as figures call them."""


def shared(config: Config, *own: str) -> Shard:
    """Return the settings that every shard has: all but its `own`, and the seed."""
    return {name: value for name, value in config.items() if name not in (*own, "seed")}


def task_of(shard: Shard) -> SparseTask:
    """Return the task whose sizes are settings of the shard."""
    return SparseTask(shard["length"], shard["signals"], shard["strength"], shard["prior"])


def sizes(shard: Shard, seed: np.random.SeedSequence) -> dict[str, Any]:
    """Return dimension, replicates and seed, as `simulate_...` take them."""
    number = int(seed.generate_state(1)[0])
    return {"dim": shard["dim"], "replicates": shard["replicates"], "seed": number}


def paired(
    labels: dict[str, Any], predicted: dict[str, float], measured: Measured | None = None
) -> pd.DataFrame:
    """One row for each predicted quantity; measurements are NaN where nothing was drawn."""
    table = pd.DataFrame({**labels, "quantity": list(predicted), "predicted": predicted.values()})
    values = (measured.mean, measured.stderr, measured.skewness) if measured else ({}, {}, {})
    for name, of in zip(("measured", "stderr", SKEWNESS), values, strict=True):
        table[name] = table["quantity"].map(of)
    return table.astype(dict.fromkeys((*COMPARED, SKEWNESS), float))


def finite(rows: pd.DataFrame, dim: float | pd.Series[int]) -> pd.DataFrame:
    """Return rows with the predictions' own error: they are limits of large d.

    The error is of the order of 1/d, `FINITE` times that of an error's p (1 - p) or of a loss; that
    size is a fit, cautious for a query that is given and too small for one that took its steps on
    few bags (studies/finite_dimension.py). A share of bags below `ROUNDING` is 0.
    """
    share = rows["quantity"].str.endswith("error")
    value = rows["predicted"].mask(share & (rows["predicted"] < ROUNDING), 0.0)
    own = FINITE * value.where(~share, value * (1 - value)) / dim
    return rows.assign(**{"predicted": value, OWN: own})


def at_size(rows: pd.DataFrame, dim: int, draws: int) -> pd.DataFrame:
    """Return rows with both their errors; predictions have none where nothing is drawn, at size 0.

    Measurements of a kind share their scatter.
    """
    kinds = [name for name in ("quantity", "model") if name in rows]
    spread = pd.concat(
        shared_scatter(part["measured"], part["stderr"], draws) for _, part in rows.groupby(kinds)
    )
    return finite(rows, dim or np.inf).assign(stderr=spread)


def side_by_side(curves: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """One row for each value of `keys`: every quantity, and beside it its measurement.

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
