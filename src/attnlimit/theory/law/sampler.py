"""How wrong is attention over the keys that a sampler keeps? Exactly, before anything is drawn."""

from __future__ import annotations

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.samplers import Iid, Sampler, WithoutReplacement
from attnlimit.theory.law.kept import SchemeError, kept_law
from attnlimit.theory.law.population import population_law
from attnlimit.theory.law.subset import subset_law


def sampler_law(
    sampler: Sampler, scores: ArrayLike | Tensor, values: ArrayLike | Tensor, queries: Tensor
) -> SchemeError:
    """Exact law of attention over what `sampler` keeps, at each of R queries.

    Parameters
    ----------
    scores : (R, N) array or tensor
        Scores of the queries on all keys; -inf where a key is not visible.
    values : (N, d_v) array or tensor
    queries : (R,) tensor of int
        Place of each query among the keys.
    """
    rows = torch.as_tensor(scores)
    if sampler.draws == "nothing":
        return _certain(
            rows.double(), torch.as_tensor(values).double(), sampler.keep(rows, queries)
        )
    if sampler.draws == "independent":
        chance = sampler.keep(rows, queries)
        return kept_law(rows, values, chance, weighted=sampler.weighted)
    if isinstance(sampler, WithoutReplacement):
        return subset_law(rows, values, sampler.size)
    if isinstance(sampler, Iid):
        law = population_law(rows, values, [sampler.size], bias=True)
        assert law.bias is not None
        return SchemeError(
            law.mse[:, 0],
            law.bias[:, 0],
            law.participation[:, 0],
            sampler.keep(rows, queries).sum(-1).double().numpy(),
            law.output,
            weighted=False,
        )
    raise BadInput(
        f"{sampler!r} draws {sampler.draws} in a way of its own, which has no exact law here; "
        "measure it, or give chances and let every key be drawn by itself."
    )


def _certain(scores: Tensor, values: Tensor, chance: Tensor) -> SchemeError:
    """Where nothing is drawn the error is a number."""
    output = torch.softmax(scores, 1) @ values
    weights = torch.softmax(scores.masked_fill(chance == 0, -torch.inf), 1)
    error = weights @ values - output
    return SchemeError(
        error.square().sum(1).numpy(),
        error.numpy(),
        weights.square().sum(1).numpy(),
        chance.sum(1).double().numpy(),
        output.numpy(),
        weighted=False,
    )
