"""How many tokens are enough? One door for a curve, a head with its tokens, or a real model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import overload

from numpy.typing import ArrayLike

from attnlimit import checks
from attnlimit.budgets.head import QUERIES, HeadBudget, head_budget
from attnlimit.budgets.model import Plan, plan_budgets
from attnlimit.budgets.query import Budget, curve_budget, query_budget
from attnlimit.budgets.terms import QUANTILE, Terms
from attnlimit.curve import Curve
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.models.capture.captured import CapturedHead
from attnlimit.models.captures import Capture
from attnlimit.samplers import Sampler
from attnlimit.tokens import Tokens


@overload
def budget(
    target: Curve, *, epsilon: float = ..., delta: float = ..., size: float | None = ...
) -> Budget: ...
@overload
def budget(
    target: Head,
    tokens: Tokens,
    x: ArrayLike | None = ...,
    *,
    epsilon: float = ...,
    delta: float = ...,
    quantile: float = ...,
    size: float | None = ...,
    queries: int = ...,
    seed: int | None = ...,
    method: str | None = ...,
) -> Budget: ...
@overload
def budget(
    target: CapturedHead,
    *,
    epsilon: float = ...,
    delta: float = ...,
    quantile: float = ...,
    queries: int = ...,
    samplers: Mapping[str, Sampler] | None = ...,
) -> HeadBudget: ...
@overload
def budget(
    target: Capture | Sequence[Capture],
    *,
    epsilon: float = ...,
    delta: float = ...,
    quantile: float = ...,
    queries: int = ...,
    samplers: Mapping[str, Sampler] | None = ...,
) -> Plan: ...
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
    seed: int | None = None,
    method: str | None = None,
    samplers: Mapping[str, Sampler] | None = None,
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
        Queries of a `Head`; by default `queries` of them drawn from `tokens` with `seed`.
    quantile : float
        Share of the queries that the promise covers.
    size : float, optional
        For a `Head` or a curve, what the error is relative to: |Gamma(x)|, and 1 for a curve.
    queries : int
        How many queries of a head the laws are evaluated at.
    method : {"exact", "delta"}, optional
        For a `Head`: its exact law, or the delta method for tokens that have none.
    samplers : mapping of names to samplers, optional
        For captured heads: samplers of your own, budgeted beside the four schemes. One that has
        `sized` is searched for its smallest size, another one is taken as it is.

    Returns
    -------
    Budget, HeadBudget or Plan
        Certified tokens (exact law and Chebyshev's inequality) beside typical ones (delta
        method); for real heads by every scheme, with the best.
    """
    terms = Terms(epsilon, delta, quantile)
    count = checks.count(queries, "queries")
    if isinstance(target, CapturedHead):
        _refuse("a captured head", tokens=tokens, x=x, size=size, seed=seed, method=method)
        return head_budget(target, terms, queries=count, samplers=samplers)
    if isinstance(target, Curve):
        _refuse("a curve", tokens=tokens, x=x, seed=seed, method=method, samplers=samplers)
        return curve_budget(target, terms, size=1.0 if size is None else size)
    if isinstance(target, Head):
        _refuse("a Head", samplers=samplers)
        if tokens is None:
            raise BadInput("A Head's budget depends on its tokens: budget(head, tokens, ...).")
        points = tokens.points(count, seed=seed or 0) if x is None else x
        return query_budget(target, tokens, points, terms, size=size, method=method or "exact")
    texts = [target] if isinstance(target, Capture) else target
    if not (isinstance(texts, Sequence) and texts and all(isinstance(t, Capture) for t in texts)):
        raise BadInput(
            f"budget needs a Curve, a Head with its tokens, or a captured head or model; "
            f"got {type(target).__name__}."
        )
    _refuse("a capture", tokens=tokens, x=x, size=size, seed=seed, method=method)
    return plan_budgets(texts, terms, queries=count, samplers=samplers)


def _refuse(what: str, **given: object) -> None:
    """Raise if an argument was given that means nothing for this target."""
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise BadInput(f"The budget of {what} takes no {' and no '.join(wrong)}; leave it out.")
