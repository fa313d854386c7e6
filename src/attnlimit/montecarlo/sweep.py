"""How are many n, draws and statistics measured in one pass? Nested prefixes, one value a draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.montecarlo.controls import TokenFeatures, token_features
from attnlimit.montecarlo.engine import prefix_outputs
from attnlimit.montecarlo.estimators import (
    NORMS,
    SQUARED,
    Prefix,
    covariance_estimator,
    mean_gram,
    mean_norm,
    mean_square,
    mean_zeros,
    moment_square,
    times,
)
from attnlimit.montecarlo.reference import (
    Moment,
    Reference,
    limit_reference,
    moment_reference,
)
from attnlimit.theory.limit import limit
from attnlimit.tokens import GaussianForm, Tokens

BATCH_PAIRS = 1 << 24
MAX_BATCH = 32


@dataclass(frozen=True)
class Samples:
    """What every draw said about one statistic: one row for each draw, one column for each n.

    `gram` holds inner products of the mean output with the token features, whose expectation over
    n tokens is `gram_mean / n`; `zeros` are further controls of mean zero.
    """

    statistic: str
    n: NDArray[np.int64]
    values: Array
    zeros: list[Array]
    gram: Array | None = None
    gram_mean: Array | None = None
    reference_error: float = 0.0


def asked_queries(n: NDArray[np.int64], most: int | None) -> list[int]:
    """How many of the n tokens to ask as queries: `most`, or about the most efficient number.

    Past a few thousand queries the noise is that of the keys, which more queries do not reduce.
    """
    if most is not None:
        return [min(int(size), most) for size in n]
    return [min(int(size), max(2048, int(size) // 8)) for size in n]


def sweep(
    head: Head,
    tokens: Tokens,
    statistics: Sequence[str],
    n: NDArray[np.int64],
    replicates: int,
    seed: np.random.SeedSequence,
    *,
    queries: int | None = None,
    moment: Moment | None = None,
) -> dict[str, Samples]:
    """Measure several statistics over an increasing grid of n from the same draws.

    Draw r uses child r of `seed`: shards of one sweep, and heads of different temperature, see the
    same tokens when they are given the same seed.
    """
    unknown = set(statistics) - {*SQUARED, *NORMS}
    if unknown:
        raise BadInput(f"sweep does not know the statistics {sorted(unknown)}.")
    reference = limit_reference(head, tokens)
    features = token_features(head, tokens)
    centred_gaussian = isinstance(tokens.form, GaussianForm) and tokens.symmetric
    covariance = covariance_estimator(
        reference,
        head.A,
        head.V,
        tokens.cov() if centred_gaussian else None,
        features.scalar_means,
    )
    estimators: dict[str, Callable[[Prefix], Tensor]] = {
        "mean": mean_square,
        "mean_norm": mean_norm,
        "covariance": covariance.square,
        "covariance_norm": lambda prefix: covariance.square(prefix).clamp_min(0).sqrt(),
        "covariance_operator_norm": covariance.operator_norm,
    }
    target_error = 0.0
    if moment is not None:
        target, target_error = moment_reference(head, tokens, moment)
        estimators["moment"] = partial(
            moment_square, moment=moment, centre=reference.mean, target=target
        )
    asked = asked_queries(n, queries)
    collected: dict[str, list[list[Tensor]]] = {name: [] for name in [*statistics, "gram"]}
    controls: dict[str, list[list[Tensor]]] = {"mean": [], "covariance": []}
    wanted = set(statistics)
    about_mean = bool(wanted & {"mean", "mean_norm"})
    about_covariance = bool(wanted & {"covariance", "covariance_norm"})
    children = seed.spawn(replicates)
    pairs = asked[-1] * int(n[-1])
    batch = int(np.clip(BATCH_PAIRS // max(pairs, 1), 1, MAX_BATCH))
    for start in range(0, replicates, batch):
        rows: dict[str, list[Tensor]] = {name: [] for name in collected}
        zeros: dict[str, list[Tensor]] = {name: [] for name in controls}
        for prefix in _prefixes(
            head, tokens, n, asked, children[start : start + batch], reference, features
        ):
            for name in statistics:
                rows[name].append(estimators[name](prefix))
            if about_mean:
                rows["gram"].append(mean_gram(prefix))
                zeros["mean"].append(mean_zeros(prefix))
            if about_covariance:
                zeros["covariance"].append(covariance.controls(prefix))
        for name, values in rows.items():
            collected[name].append(values)
        for name, values in zeros.items():
            controls[name].append(values)
    errors = {"mean": reference.mean_error, "moment": target_error}
    result = {}
    for name in statistics:
        kind = name.split("_")[0]
        has_gram = kind == "mean"
        result[name] = Samples(
            statistic=name,
            n=n,
            values=_table(collected[name]),
            zeros=_columns(controls[kind], len(n)) if kind in controls else [],
            gram=_table(collected["gram"]) if has_gram else None,
            gram_mean=features.gram if has_gram else None,
            reference_error=errors.get(kind, reference.covariance_error),
        )
    return result


def _prefixes(
    head: Head,
    tokens: Tokens,
    n: NDArray[np.int64],
    asked: list[int],
    seeds: Sequence[np.random.SeedSequence],
    reference: Reference,
    features: TokenFeatures,
) -> Iterator[Prefix]:
    largest = int(n[-1])
    drawn = np.stack([tokens.sample(largest, np.random.default_rng(seed)) for seed in seeds])
    keys = torch.from_numpy(drawn).float()
    tilts = torch.from_numpy(drawn[:, : asked[-1]] @ head.A.T).float()
    limits = torch.from_numpy(limit(head, tokens)(drawn[:, : asked[-1]]) - reference.mean)
    value = torch.from_numpy(head.V.T.copy())
    mean = torch.from_numpy(reference.mean)
    sums = scalars = total = second = torch.zeros(())
    previous = 0
    for size, count, outputs in zip(
        n.tolist(), asked, prefix_outputs(tilts, keys, n.tolist(), asked), strict=True
    ):
        segment = keys[:, previous:size]
        vector_sums, scalar_sums = features.sums(segment)
        sums, scalars = sums + vector_sums, scalars + scalar_sums
        segment = segment.double()
        total = total + segment.sum(1)
        second = second + segment.transpose(1, 2) @ segment
        previous = size
        means = sums / size
        used, steady = (torch.from_numpy(mask) for mask in features.steady(size))
        expected = torch.from_numpy(features.scalar_means)
        yield Prefix(
            n=size,
            outputs=times(outputs, value) - mean,
            limits=limits[:, :count],
            limit_mean=means[:, 0],
            features=means * used[:, None],
            scalars=torch.where(steady, scalars / size, expected),
            token_mean=total / size,
            second=second / size,
            queries=keys[:, :count].double(),
        )


def _table(batches: list[list[Tensor]]) -> Array:
    """Batches of columns, one for each n, to one array with a row for each draw."""
    return torch.cat([torch.stack(columns, dim=1) for columns in batches]).numpy()


def _columns(batches: list[list[Tensor]], sizes: int) -> list[Array]:
    """For each n, the controls of every draw; their number may differ from n to n."""
    return [torch.cat([columns[k] for columns in batches]).numpy() for k in range(sizes)]
