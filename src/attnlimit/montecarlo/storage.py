"""How do the draws of a sweep go to a table and back, so that shards can be combined later?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnlimit.checks import Array
from attnlimit.montecarlo.sweep import Samples


def samples_frame(result: dict[str, Samples]) -> pd.DataFrame:
    """One row for each draw and n: a value for each statistic, and lists of controls."""
    first = next(iter(result.values()))
    replicates, sizes = first.values.shape
    columns: dict[str, object] = {"n": np.tile(first.n, replicates)}
    for name, samples in result.items():
        columns[name] = samples.values.ravel()
        if samples.zeros:
            kind = name.split("_")[0]
            columns[f"zeros_{kind}"] = [
                samples.zeros[k][row].tolist() for row in range(replicates) for k in range(sizes)
            ]
        if samples.gram is not None:
            columns["gram"] = [
                samples.gram[row, k].ravel().tolist()
                for row in range(replicates)
                for k in range(sizes)
            ]
    return pd.DataFrame(columns)


def samples_from_frame(
    frame: pd.DataFrame, statistics: Sequence[str], gram_mean: Array, reference_error: float = 0.0
) -> dict[str, Samples]:
    """Rebuild the samples of a sweep from the rows of all its shards, draws in their order."""
    n = np.sort(frame["n"].unique()).astype(np.int64)
    parts = [frame[frame["n"] == size] for size in n]
    result = {}
    for name in statistics:
        kind = name.split("_")[0]
        zeros = []
        if f"zeros_{kind}" in frame:
            zeros = [_rows(part[f"zeros_{kind}"]) for part in parts]
        gram = None
        if kind == "mean":
            side = len(gram_mean) + 1
            stacked = [_rows(part["gram"]).reshape(-1, side, side) for part in parts]
            gram = np.stack(stacked, axis=1)
        result[name] = Samples(
            statistic=name,
            n=n,
            values=np.stack([part[name].to_numpy() for part in parts], axis=1),
            zeros=zeros,
            gram=gram,
            gram_mean=gram_mean if kind == "mean" else None,
            reference_error=reference_error,
        )
    return result


def _rows(lists: pd.Series) -> Array:
    """Lists of one length, which may be zero, as the rows of an array."""
    return np.asarray([*map(list, lists)], dtype=np.float64).reshape(len(lists), -1)
