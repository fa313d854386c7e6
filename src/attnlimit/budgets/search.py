"""Which n is the smallest that is enough? Searched on the exact law, text by text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from attnlimit.budgets.enough import first_enough, narrowed, smallest
from attnlimit.budgets.schemes import Guess, SchemeErrors
from attnlimit.budgets.seen import Queries
from attnlimit.budgets.terms import Terms
from attnlimit.budgets.transfer import next_text
from attnlimit.checks import Array
from attnlimit.models.heads.delta import MAX_PARTICIPATION
from attnlimit.samplers import Iid

FEW = 8
"""Queries that are asked exactly while a size is sought."""

MOST_AIMS = 24
"""Sizes tried at few queries, some of them by bisection, before all are asked at every size."""

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
    for errors in _hardest_first(texts, terms, tolerance):

        def law(n: int, errors: SchemeErrors = errors) -> float:
            return terms.over_queries(errors.again(n))

        if found and (not np.isfinite(found) or law(int(found)) <= tolerance):
            continue
        if errors.guess is not None:
            found = _aimed(errors, errors.guess, terms, tolerance, max(1, int(found)))
        elif found == 0:
            grid = np.array([terms.over_queries(error) for error in errors.error.T])
            found = smallest(law, errors.n, grid, tolerance, PRECISION)
        else:
            found = narrowed(law, int(found), int(errors.n[-1]), tolerance, PRECISION)
    return found


def _hardest_first(
    texts: Sequence[SchemeErrors], terms: Terms, tolerance: float
) -> Sequence[SchemeErrors]:
    """Texts by what they need to first order, where that is known."""

    def needed(errors: SchemeErrors) -> float:
        return (
            0.0 if errors.guess is None else -_first_order(errors, errors.guess, terms, tolerance)
        )

    return sorted(texts, key=needed)


def _first_order(errors: SchemeErrors, guess: Guess, terms: Terms, tolerance: float) -> float:
    """Smallest n that is enough to first order."""

    def law(n: int) -> float:
        return terms.over_queries(guess.first_order(n))

    return narrowed(law, 1, int(errors.n[-1]), tolerance)


def _aimed(
    errors: SchemeErrors, guess: Guess, terms: Terms, tolerance: float, low: int = 1
) -> float:
    """Smallest n above `low` that is enough, sought by first order and exactly at few queries.

    Those few are the worst to first order. What is found is asked of all queries; should others be
    worse, they join the few and it is sought again from there.
    """
    size = high = int(errors.n[-1])
    aim = int(_first_order(errors, guess, terms, tolerance))
    few = np.argsort(guess.first_order(aim))[-FEW:]
    for turn in range(MOST_AIMS):
        if high - low <= max(1.0, PRECISION * high):
            exact = errors.again(high)
            if terms.over_queries(exact) <= tolerance:
                return float(high)
            few = np.union1d(few, np.argsort(exact)[-FEW:])
            low, high = high, size
        aim = int(np.clip(aim if turn % 8 < 5 else (low + high) // 2, low + 1, max(high - 1, 2)))
        first = guess.first_order(aim)
        error = first.copy()
        error[few] = guess.some(aim, few)
        found = terms.over_queries(error)
        low, high = (low, aim) if found <= tolerance else (aim, high)
        corrected = tolerance * terms.over_queries(first) / max(found, 1e-300)
        aside = max(1, int(PRECISION * high / 2))
        aim = int(_first_order(errors, guess, terms, corrected))
        aim += aside if high == size else -aside
    return narrowed(lambda n: terms.over_queries(errors.again(n)), low, size, tolerance, PRECISION)


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
    found = [_normal(queries, terms, context) for queries in texts]
    needed = max(tokens for tokens, _ in found)
    crowding = max(crowd for _, crowd in found)
    reliable = bool(crowding / needed < MAX_PARTICIPATION)
    return (int(needed) if needed <= context else None), reliable


def _normal(queries: Queries, terms: Terms, context: int) -> tuple[float, float]:
    """Tokens drawn with replacement, by the normal law; and how concentrated the weights are.

    Where even a covariance that spreads evenly needs more than the context, that will do.
    """
    counts = (queries.scores > -torch.inf).sum(1).double()
    square, values, output = queries.weights.square(), queries.values, queries.output
    width = values.shape[1]
    crowding = float(np.quantile((counts * square.sum(1)).numpy(), terms.quantile))
    around = torch.cdist(output, values, compute_mode="donot_use_mm_for_euclid_dist").square_()
    traces = (counts * (square * around).sum(1)).numpy()
    least = terms.over_queries(terms.normal_tokens(traces, traces**2 / width, queries.size))
    if least > context and crowding / least < MAX_PARTICIPATION:
        return least, crowding
    first, second = torch.triu_indices(width, width)
    # sum_j p_j^2 (v_j - o)(v_j - o)' from the products of values that all queries share.
    pull, mass = square @ values, square.sum(1)
    pairs = square @ (values[:, first] * values[:, second])
    pairs -= pull[:, first] * output[:, second] + output[:, first] * pull[:, second]
    pairs += mass[:, None] * output[:, first] * output[:, second]
    twice = torch.where(first == second, 1.0, 2.0).double()
    squares = (counts**2 * (pairs.square() @ twice)).numpy()
    tokens = terms.normal_tokens(traces, squares, queries.size)
    return terms.over_queries(np.maximum(np.ceil(tokens), 2)), crowding
