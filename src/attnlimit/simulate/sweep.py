"""Many n, draws and statistics in one pass: nested prefixes, one value for each draw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.simulate.engine import prefix_outputs
from attnlimit.simulate.statistics import (
    NORMS,
    SQUARED,
    Controls,
    Prefix,
    Reference,
    covariance_square,
    limit_reference,
    mean_norm,
    mean_square,
)
from attnlimit.tokens import Tokens

BATCH_PAIRS = 1 << 24
MAX_BATCH = 32
# Where n is small a draw has several sets of tokens: at most so many pairs, and tokens.
SET_PAIRS = 1 << 21
SET_TOKENS = 1 << 11


@dataclass(frozen=True)
class Samples:
    """Values of one statistic: one row for each draw, one column for each n.

    `controls` holds control variates of mean zero, (draws, Z) for each n.
    """

    statistic: str
    n: NDArray[np.int64]
    values: Array
    controls: list[Array] = field(default_factory=list)
    reference_error: float = 0.0

    def part(self, rows: slice) -> Samples:
        """Some of the draws as samples of their own."""
        kept = [control[rows] for control in self.controls]
        return replace(self, values=self.values[rows], controls=kept)


def sweep(
    head: Head,
    tokens: Tokens,
    statistics: Sequence[str],
    n: NDArray[np.int64],
    replicates: int,
    seed: np.random.SeedSequence,
    *,
    queries: int | None = None,
    sets: int | None = None,
) -> dict[str, Samples]:
    """Measure several statistics over an increasing grid of n from the same draws.

    Draw r uses child r of `seed`: shards of one sweep, and heads of different temperature, see the
    same tokens when they are given the same seed. Where n is small a draw is the average over
    `sets` of tokens: single ones are too skewed for a few draws to estimate their own scatter, and
    cost next to nothing.
    """
    unknown = set(statistics) - {*SQUARED, *NORMS}
    if unknown:
        raise BadInput(
            f"sweep does not know the statistics {sorted(unknown)}; measure them with measure."
        )
    reference = limit_reference(head, tokens)
    covariance = torch.from_numpy(reference.covariance)
    estimators: dict[str, Callable[[Prefix], Tensor]] = {
        "mean": mean_square,
        "mean_norm": mean_norm,
        "covariance": partial(covariance_square, covariance=covariance),
        "covariance_norm": lambda p: covariance_square(p, covariance).clamp_min(0).sqrt(),
    }
    # Past a few thousand queries the noise is that of the keys, which more queries do not reduce.
    counts = [min(size, queries or max(2048, size // 8)) for size in n.tolist()]
    kinds = {name: name.split("_")[0] for name in statistics}
    controls = Controls.of(head, tokens)
    rows: dict[str, list[list[Tensor]]] = defaultdict(list)
    children = seed.spawn(replicates)
    sets = sets or sets_of(int(n[-1]))
    batch = int(np.clip(BATCH_PAIRS // max(sets * counts[-1] * int(n[-1]), 1), 1, MAX_BATCH))
    for start in range(0, replicates, batch):
        seeds = children[start : start + batch]
        columns: dict[str, list[Tensor]] = defaultdict(list)
        for prefix in _prefixes(head, tokens, n, counts, sets, seeds, reference):
            for name in statistics:
                columns[name].append(estimators[name](prefix))
            if "mean" in kinds.values():
                columns["controls_mean"].append(controls.of_mean(prefix))
            if "covariance" in kinds.values():
                columns["controls_covariance"].append(controls.of_covariance(prefix))
        for name, tensors in columns.items():
            rows[name].append([tensor.unflatten(0, (-1, sets)).mean(1) for tensor in tensors])
    errors = {"mean": reference.mean_error, "covariance": reference.covariance_error}
    return {
        name: Samples(
            statistic=name,
            n=n,
            values=_table(rows[name]),
            controls=list(np.moveaxis(_table(rows[f"controls_{kind}"]), 1, 0))
            if f"controls_{kind}" in rows
            else [],
            reference_error=errors[kind],
        )
        for name, kind in kinds.items()
    }


def sets_of(largest: int) -> int:
    """How many sets of tokens a draw averages over, by the largest n; one past 1024."""
    return max(1, min(SET_PAIRS // largest**2, SET_TOKENS // largest))


def _prefixes(
    head: Head,
    tokens: Tokens,
    n: NDArray[np.int64],
    queries: list[int],
    sets: int,
    seeds: Sequence[np.random.SeedSequence],
    reference: Reference,
) -> Iterator[Prefix]:
    """Every prefix of the sets of all draws, the sets of one draw side by side."""
    largest = int(n[-1])
    rows = [tokens.sample(sets * largest, np.random.default_rng(seed)) for seed in seeds]
    drawn = np.concatenate(rows).reshape(len(seeds) * sets, largest, -1)
    keys = torch.from_numpy(drawn).float()
    tilts = torch.from_numpy(drawn[:, : queries[-1]] @ head.A.T).float()
    # One product for each draw: folded into one, the last bit would depend on how many there are.
    value = torch.from_numpy(head.V.T.copy()).expand(len(drawn), -1, -1)
    mean = torch.from_numpy(reference.mean)
    centred = torch.from_numpy(drawn - tokens.mean())
    total = second = torch.zeros(())
    previous = 0
    for size, outputs in zip(
        n.tolist(), prefix_outputs(tilts, keys, n.tolist(), queries), strict=True
    ):
        segment = centred[:, previous:size]
        total = total + segment.sum(1)
        second = second + segment.transpose(1, 2) @ segment
        previous = size
        yield Prefix(size, torch.bmm(outputs, value) - mean, total / size, second / size)


def _table(batches: list[list[Tensor]]) -> Array:
    """Batches of columns, one for each n, to one array with a row for each draw."""
    return torch.cat([torch.stack(columns, dim=1) for columns in batches]).numpy()


def samples_frame(result: dict[str, Samples]) -> pd.DataFrame:
    """One row for each draw and n: a value for each statistic, and lists of controls."""
    first = next(iter(result.values()))
    replicates, sizes = first.values.shape
    columns: dict[str, object] = {"n": np.tile(first.n, replicates)}
    for name, samples in result.items():
        columns[name] = samples.values.ravel()
        if samples.controls:
            columns[f"controls_{name.split('_')[0]}"] = [
                samples.controls[k][row].tolist() for row in range(replicates) for k in range(sizes)
            ]
    return pd.DataFrame(columns)


def samples_from_frame(frame: pd.DataFrame, statistics: Sequence[str]) -> dict[str, Samples]:
    """Rebuild the samples of a sweep from the rows of all its shards, draws in their order."""
    n = np.sort(frame["n"].unique()).astype(np.int64)
    parts = [frame[frame["n"] == size] for size in n]
    result = {}
    for name in statistics:
        column = f"controls_{name.split('_')[0]}"
        controls = [_rows(part[column]) for part in parts] if column in frame else []
        values = np.stack([part[name].to_numpy() for part in parts], axis=1)
        result[name] = Samples(name, n, values, controls)
    return result


def _rows(lists: pd.Series) -> Array:
    """Lists of one length, which may be zero, as the rows of an array."""
    return np.asarray([*map(list, lists)], dtype=np.float64).reshape(len(lists), -1)
