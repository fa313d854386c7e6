"""How many tokens are enough? One door for a curve, a head with its tokens, or a real model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from numpy.typing import ArrayLike

from attnlimit import checks
from attnlimit.budgets import (
    Budget,
    HeadBudget,
    Plan,
    Promise,
    curve_budget,
    head_budget,
    keep_promise,
    plan_budgets,
    query_budget,
)
from attnlimit.budgets.head import QUERIES
from attnlimit.budgets.terms import QUANTILE, Terms
from attnlimit.curve import Curve
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.models.capture.captured import CapturedHead
from attnlimit.models.captures import Capture
from attnlimit.tokens import Tokens

__all__ = ["Budget", "HeadBudget", "Plan", "Promise", "budget", "keep_promise"]


def budget(
    target: Curve | Head | Capture | CapturedHead | Sequence[Capture],
    tokens: Tokens | None = None,
    x: ArrayLike | None = None,
    *,
    epsilon: float = 0.1,
    delta: float = 0.05,
    quantile: float = QUANTILE,
    size: float | None = None,
    queries: int = QUERIES,
    seed: int = 0,
) -> Budget | HeadBudget | Plan:
    """Smallest number of tokens for a relative error `epsilon` with probability 1 - `delta`.

    Parameters
    ----------
    target : Curve, Head, captured head, capture or list of captures
        A curve of mean squared errors; a head (then `tokens` says where its keys come from); a
        head of a real model, `cap[layer, head]`; the whole capture; or captures of one model on
        several texts, whose plan is for the next text.
    tokens : Tokens
        For a `Head`.
    x : (m, d) array, optional
        Queries of a `Head`; by default `queries` of them drawn from `tokens`.
    quantile : float
        Share of the queries that the promise covers.
    size : float, optional
        What the error is relative to: |Gamma(x)| by default, 1 for a curve.
    queries : int
        How many queries of a captured head the laws are evaluated at.

    Returns
    -------
    Budget, HeadBudget or Plan
        Certified tokens (exact law and Chebyshev's inequality) beside typical ones (delta
        method); for real heads by every scheme, with the best.
    """
    terms = Terms(epsilon, delta, quantile)
    count = checks.count(queries, "queries")
    if isinstance(target, Curve):
        return curve_budget(target, terms, size=1.0 if size is None else size)
    if isinstance(target, Capture) or _are_captures(target):
        return plan_budgets(target, terms, queries=count)
    if isinstance(target, CapturedHead):
        return head_budget(target, terms, queries=count)
    if not isinstance(target, Head):
        raise BadInput(
            f"budget needs a Curve, a Head with its tokens, or a captured head or model; "
            f"got {type(target).__name__}."
        )
    if tokens is None:
        raise BadInput("A Head's budget depends on its tokens: budget(head, tokens, ...).")
    points = tokens.points(count, seed=seed) if x is None else x
    return query_budget(target, tokens, points, terms, size=size)


def _are_captures(target: object) -> TypeGuard[Sequence[Capture]]:
    return (
        isinstance(target, Sequence)
        and len(target) > 0
        and all(isinstance(one, Capture) for one in target)
    )
