"""Which n is the smallest that is enough? Searched on the exact law, text by text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from attnlimit.budgets.enough import first_enough, narrowed, smallest
from attnlimit.budgets.schemes import Queries, SchemeErrors
from attnlimit.budgets.terms import Terms
from attnlimit.budgets.transfer import next_text
from attnlimit.checks import Array
from attnlimit.models.heads.delta import MAX_PARTICIPATION
from attnlimit.samplers import Iid

PRECISION = 0.01
"""How much larger than the smallest that is enough a drawn scheme's n may be."""


def certified_tokens(texts: Sequence[SchemeErrors], terms: Terms) -> float:
    """Smallest n at which the promised share of each text's queries has its certificate.

    A scheme that draws nothing has no slack, and is given what the next text may need.
    """
    if texts[0].drawn:
        return _over_texts(texts, terms, terms.certified)
    needed = np.array([terms.over_queries(fixed_tokens(errors, terms)) for errors in texts])
    everything = max(float(errors.n[-1]) for errors in texts)
    return min(next_text(needed), max(everything, float(needed.max())))


def fixed_tokens(errors: SchemeErrors, terms: Terms) -> Array:
    """Tokens (R,) from which on each query's error, which is a number, stays within epsilon."""
    return first_enough(errors.error, terms.epsilon, errors.n)


def _over_texts(texts: Sequence[SchemeErrors], terms: Terms, tolerance: float) -> float:
    """Smallest n that is enough on every text; what one text needs is only checked on the next."""
    found = 0.0
    for errors in texts:

        def law(n: int, errors: SchemeErrors = errors) -> float:
            return terms.over_queries(errors.again(n))

        if found == 0:
            grid = np.array([terms.over_queries(error) for error in errors.error.T])
            found = smallest(law, errors.n, grid, tolerance, PRECISION)
        elif np.isfinite(found) and law(int(found)) > tolerance:
            found = narrowed(law, int(found), int(errors.n[-1]), tolerance, PRECISION)
    return found


def typical_tokens(
    texts: Sequence[Queries],
    errors: Sequence[SchemeErrors],
    terms: Terms,
    certified: int | None,
    context: int,
) -> tuple[int | None, bool]:
    """Tokens with no certificate, None past the context, and whether their law can be trusted."""
    if not errors[0].drawn:
        return certified, True
    if not isinstance(errors[0].sampler, Iid):
        # No certificate: the hardest text will do.
        needed = _over_texts(errors[:1], terms, terms.typical)
        return (int(needed) if needed <= context else None), True
    found = [_normal(queries, terms) for queries in texts]
    needed = max(tokens for tokens, _ in found)
    crowding = max(crowd for _, crowd in found)
    reliable = bool(crowding / needed < MAX_PARTICIPATION)
    return (int(needed) if needed <= context else None), reliable


def _normal(queries: Queries, terms: Terms) -> tuple[float, float]:
    """Tokens drawn with replacement, by the normal law; and how concentrated the weights are."""
    counts = (queries.scores > -torch.inf).sum(1).double()
    traces, squares = [], []
    for weights, output, count in zip(queries.weights, queries.output, counts, strict=True):
        pull = weights[:, None] * (queries.values - output)
        covariance = count * pull.T @ pull
        traces.append(float(covariance.trace()))
        squares.append(float(covariance.square().sum()))
    tokens = terms.normal_tokens(np.array(traces), np.array(squares), queries.size)
    crowding = np.quantile((counts * queries.weights.square().sum(1)).numpy(), terms.quantile)
    return terms.over_queries(np.maximum(np.ceil(tokens), 2)), float(crowding)
