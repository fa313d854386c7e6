"""How are many n, draws and statistics measured in one pass? Nested prefixes, one value a draw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
from attnlimit.montecarlo.token_effects import TokenEffects, token_effects
from attnlimit.theory.limit import limit
from attnlimit.tokens import GaussianForm, Tokens

BATCH_PAIRS = 1 << 24
MAX_BATCH = 32
# Where n is small a draw has several sets of tokens: at most so many pairs, and tokens.
SET_PAIRS = 1 << 21
SET_TOKENS = 1 << 11


@dataclass(frozen=True)
class Samples:
    """What every draw said about one statistic: one row for each draw, one column for each n.

    `gram` holds inner products of the mean output with the token features, whose expectation over
    n tokens is `gram_mean / n`; `zeros` are further controls of mean zero.
    """

    statistic: str
    n: NDArray[np.int64]
    values: Array
    zeros: list[Array] = field(default_factory=list)
    gram: Array | None = None
    gram_mean: Array | None = None
    reference_error: float = 0.0

    def part(self, rows: slice) -> Samples:
        """Some of the draws as samples of their own."""
        return replace(
            self,
            values=self.values[rows],
            zeros=[control[rows] for control in self.zeros],
            gram=None if self.gram is None else self.gram[rows],
        )


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
    sets: int | None = None,
) -> dict[str, Samples]:
    """Measure several statistics over an increasing grid of n from the same draws.

    Draw r uses child r of `seed`: shards of one sweep, and heads of different temperature, see the
    same tokens when they are given the same seed. Where n is small a draw is the average over
    `sets` of tokens: single ones are too skewed for a few draws to know their own scatter, and
    cost next to nothing.
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
    # Past a few thousand queries the noise is that of the keys, which more queries do not reduce.
    asked = [min(size, queries or max(2048, size // 8)) for size in n.tolist()]
    kinds = {name: name.split("_")[0] for name in statistics}
    known = "covariance" in statistics and centred_gaussian
    effects = token_effects(head, tokens, n.tolist() if known else [])
    rows: dict[str, list[list[Tensor]]] = defaultdict(list)
    children = seed.spawn(replicates)
    sets = sets or sets_of(int(n[-1]))
    batch = int(np.clip(BATCH_PAIRS // max(sets * asked[-1] * int(n[-1]), 1), 1, MAX_BATCH))
    for start in range(0, replicates, batch):
        seeds = children[start : start + batch]
        found: dict[str, list[Tensor]] = defaultdict(list)
        for prefix in _prefixes(head, tokens, n, asked, sets, seeds, reference, features, effects):
            for name in statistics:
                found[name].append(estimators[name](prefix))
            if "mean" in kinds.values():
                found["gram"].append(mean_gram(prefix))
                found["zeros_mean"].append(mean_zeros(prefix))
            if "covariance" in kinds.values():
                found["zeros_covariance"].append(covariance.controls(prefix))
        for name, columns in found.items():
            rows[name].append([one.unflatten(0, (-1, sets)).mean(1) for one in columns])
    errors = {
        "mean": reference.mean_error,
        "covariance": reference.covariance_error,
        "moment": target_error,
    }
    return {
        name: Samples(
            statistic=name,
            n=n,
            values=_table(rows[name]),
            # The number of controls may differ from n to n.
            zeros=[
                torch.cat(column).numpy() for column in zip(*rows[f"zeros_{kind}"], strict=True)
            ],
            gram=_table(rows["gram"]) if kind == "mean" else None,
            gram_mean=features.gram if kind == "mean" else None,
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
    asked: list[int],
    sets: int,
    seeds: Sequence[np.random.SeedSequence],
    reference: Reference,
    features: TokenFeatures,
    effects: TokenEffects,
) -> Iterator[Prefix]:
    """Every prefix of the sets of all draws, the sets of one draw side by side."""
    largest = int(n[-1])
    rows = [tokens.sample(sets * largest, np.random.default_rng(seed)) for seed in seeds]
    drawn = np.concatenate(rows).reshape(len(seeds) * sets, largest, -1)
    keys = torch.from_numpy(drawn).float()
    tilts = torch.from_numpy(drawn[:, : asked[-1]] @ head.A.T).float()
    limits = torch.from_numpy(limit(head, tokens)(drawn[:, : asked[-1]]) - reference.mean)
    places = effects.places(keys)
    value = torch.from_numpy(head.V.T.copy())
    mean = torch.from_numpy(reference.mean)
    sums = scalars = total = second = torch.zeros(())
    previous = 0
    for size, count, outputs in zip(
        n.tolist(), asked, prefix_outputs(tilts, keys, n.tolist(), asked), strict=True
    ):
        segment = keys[:, previous:size]
        vector_sums, scalar_sums = features.sums(segment, sets)
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
            effects=effects.surplus(keys, places, size),
        )


def _table(batches: list[list[Tensor]]) -> Array:
    """Batches of columns, one for each n, to one array with a row for each draw."""
    return torch.cat([torch.stack(columns, dim=1) for columns in batches]).numpy()
