"""Error of attention over the keys that a sampler keeps, before any is drawn."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.samplers import Sampler
from attnlimit.theory.one_query.first_order import value_variance
from attnlimit.theory.one_query.kept import kept_law, subset_law
from attnlimit.theory.one_query.population import population_law
from attnlimit.theory.one_query.sampled import SamplerLaw, by_blocks, certain_law, checked


def sampler_law(
    sampler: Sampler, scores: ArrayLike | Tensor, values: ArrayLike | Tensor, queries: Tensor
) -> SamplerLaw:
    """Exact law of attention over what `sampler` keeps, at each of R queries.

    Parameters
    ----------
    scores : (R, N) array or tensor
        Scores of the queries on all keys; -inf where a key is not visible.
    values : (N, d_v) array or tensor
    queries : (R,) tensor of int
        Place of each query among the keys.
    """
    rows, points = checked(scores, values)
    chance = sampler.inclusion_probabilities(rows, queries)
    if sampler.draws == "nothing":
        return certain_law(rows.double(), points.double(), chance, weighted=False)
    if sampler.draws == "independent":
        return kept_law(rows, points, chance, weighted=sampler.weighted)
    if sampler.draws == "values":
        return value_law(sampler, rows.double(), points.double())
    size = getattr(sampler, "size", None)
    if size is None:
        raise BadInput(
            f"{sampler.name} draws {sampler.draws} without a size and has no exact law. "
            "Measure it, or give it a size: the number of keys that it draws."
        )
    if sampler.draws == "without replacement":
        return subset_law(rows, points, size)
    law = population_law(rows, points, [size], bias=True)
    assert law.bias is not None
    return SamplerLaw(
        law.mse[:, 0],
        law.bias[:, 0],
        law.participation[:, 0],
        chance.sum(-1).double().numpy(),
        law.output,
        weighted=False,
    )


def value_law(sampler: Any, scores: Tensor, values: Tensor) -> SamplerLaw:
    """Law at each of R queries, from scores (R, N) and values (N, d_v) in double precision."""
    output = torch.softmax(scores, 1) @ values

    def of(rows: slice) -> tuple[Tensor, ...]:
        weights = torch.softmax(scores[rows], 1)
        along = values.T[:, None] - output[rows].T[:, :, None]
        mse = value_variance(weights, along, sampler.size, sampler.systematic).sum(0)
        drawn, counts = sampler.overlaps(weights)
        participation = weights.square().sum(1) + counts.sum(1) / sampler.size**2
        return mse, participation, drawn.masked_fill(scores[rows] == -torch.inf, 0.0).sum(1)

    mse, participation, kept = by_blocks(of, len(scores), scores.shape[1] * values.shape[1])
    bias = torch.zeros_like(output)
    return SamplerLaw(
        mse=mse.numpy(),
        bias=bias.numpy(),
        participation=participation.numpy(),
        kept=kept.numpy(),
        output=output.numpy(),
        weighted=True,
    )
