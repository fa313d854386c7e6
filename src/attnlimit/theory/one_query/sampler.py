"""How wrong is attention over the keys that a sampler keeps? Exactly, before anything is drawn."""

from __future__ import annotations

from numpy.typing import ArrayLike
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.samplers import Sampler
from attnlimit.theory.one_query.kept import kept_law
from attnlimit.theory.one_query.population import population_law
from attnlimit.theory.one_query.sampled import SamplerLaw, certain_law, checked
from attnlimit.theory.one_query.subset import subset_law
from attnlimit.theory.one_query.value_rows import value_law


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
