"""Smallest number of tokens for a relative error, of a curve, a head or a captured head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.curve import NORMS, Curve
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.models.captured import CapturedHead
from attnlimit.planning.head_budget import (
    QUANTILE,
    QUERIES,
    HeadBudget,
    Tolerance,
    captured_head_budget,
    first_within,
    smallest_on_grid,
)
from attnlimit.result import Result, table
from attnlimit.samplers import Sampler
from attnlimit.theory.delta import fluctuation
from attnlimit.theory.limit import limit
from attnlimit.theory.one_query.pointwise import pointwise_error
from attnlimit.tokens import Tokens

MOST = 10**12
GRID = 60


@dataclass(frozen=True, eq=False)
class Budget(Result):
    """Tokens for each of m queries, and for a share of them.

    Infinite where even 10^12 tokens are not enough.
    """

    tolerance: Tolerance
    certified: Array  # (m,) by the exact law and Chebyshev's inequality
    typical: Array  # (m,) by the delta method; no certificate
    size: Array  # (m,) norm that the error is relative to
    source: str

    @property
    def n(self) -> int:
        """Certified tokens for the share `quantile` of the queries."""
        needed = self.tolerance.over_queries(self.certified)
        if not np.isfinite(needed):
            raise BadInput(
                f"No n up to {MOST:g} is certified for this share of queries, because few keys "
                "dominate them; allow a larger epsilon or delta, or a smaller quantile."
            )
        return int(needed)

    def to_frame(self) -> pd.DataFrame:
        """One row for each query."""
        query = np.arange(len(self.certified))
        return table(query=query, certified=self.certified, typical=self.typical, size=self.size)

    def __str__(self) -> str:
        allowed = self.tolerance
        certified, typical = (allowed.over_queries(a) for a in (self.certified, self.typical))
        return (
            f"relative error {allowed.epsilon:g} with probability {1 - allowed.delta:g} for "
            f"{allowed.quantile:.0%} of {len(self.certified)} queries ({self.source}): "
            f"{certified:.6g} tokens certified, {typical:.6g} typical"
        )


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
def budget(
    target: Curve | Head | CapturedHead,
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
) -> Budget | HeadBudget:
    """Smallest number of tokens for a relative error `epsilon` with probability 1 - `delta`.

    Parameters
    ----------
    target : Curve, Head or captured head
        A curve of errors; a head, whose keys come from `tokens`; or a head of a real model,
        `capture[layer, head]`. For a whole model see `al.models.plan`.
    tokens : Tokens
        For a `Head`.
    x : (m, d) array, optional
        Queries of a `Head`; by default `queries` of them drawn from `tokens` with `seed`.
    quantile : float
        Share of the queries that the promise covers.
    size : float, optional
        For a `Head` or a curve, what the error is relative to: |Gamma(x)|, and 1 for a curve.
    queries : int
        Number of queries of a head at which the law is evaluated.
    method : {"exact", "delta"}, optional
        For a `Head`: its exact law, or the delta method for tokens that have none.
    samplers : mapping of names to samplers, optional
        For captured heads: samplers of your own beside the four schemes. One that can be resized
        is searched for its smallest size, another one is taken as it is.

    Returns
    -------
    Budget or HeadBudget
        Certified tokens (exact law and Chebyshev's inequality) beside typical ones (delta
        method); for captured heads by every scheme, with the best.

    Examples
    --------
    >>> import numpy as np, attnlimit as al
    >>> n = np.array([10, 100, 1000])
    >>> curve = al.Curve("pointwise", n, 4.0 / n, np.zeros(3), "exact law")
    >>> al.budget(curve, epsilon=0.5, delta=0.1, size=2.0).n
    40
    """
    allowed = Tolerance(epsilon, delta, quantile)
    count = checks.count(queries, "queries")
    if isinstance(target, CapturedHead):
        _refuse("a captured head", tokens=tokens, x=x, size=size, seed=seed, method=method)
        return captured_head_budget(target, allowed, queries=count, samplers=samplers)
    if isinstance(target, Curve):
        _refuse("a curve", tokens=tokens, x=x, seed=seed, method=method, samplers=samplers)
        return _curve_budget(target, allowed, size=1.0 if size is None else size)
    if isinstance(target, Head):
        _refuse("a Head", samplers=samplers)
        if tokens is None:
            raise BadInput("A Head's budget depends on its tokens; call budget(head, tokens, ...).")
        points = tokens.points(count, seed=seed or 0) if x is None else x
        return _query_budget(target, tokens, points, allowed, size=size, method=method or "exact")
    raise BadInput(
        f"budget needs a Curve, a Head with its tokens, or a captured head, capture[layer, head]; "
        f"got {type(target).__name__}. For a whole model use al.models.plan."
    )


def _refuse(what: str, **given: object) -> None:
    """Raise if an argument was given that means nothing for this target."""
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise BadInput(f"The budget of {what} takes no {' and no '.join(wrong)}; leave it out.")


def _curve_budget(curve: Curve, tolerance: Tolerance, *, size: float) -> Budget:
    """Smallest n of a curve, relative to `size`; straight lines in log-log between its n.

    A mean squared error goes through Chebyshev's inequality, an expected norm through Markov's.
    Errors that the curve states are added: two standard errors, and its numerical error.
    """
    scale = checks.positive(size, "size")
    if len(curve.n) < 1:
        raise BadInput("The curve is empty; compute it at some n.")
    stated = 0.0 if curve.numerical_error is None else curve.numerical_error
    upper = curve.value + 2 * curve.stderr + stated
    if not np.isfinite(upper).all():
        raise BadInput(
            "The curve does not state a finite error at every n, so nothing can be certified from "
            "it; measure it with at least two replicates, or leave those n out."
        )
    order = np.argsort(curve.n)
    value, n = upper[order], curve.n[order].astype(np.float64)
    if curve.statistic in NORMS:
        limits = [tolerance.delta * tolerance.epsilon * scale, tolerance.typical * scale]
    else:
        limits = [(tolerance.certified * scale) ** 2, (tolerance.typical * scale) ** 2]
    certified, typical = (np.array([_crossing(n, value, largest)]) for largest in limits)
    return Budget(tolerance, certified, typical, np.array([scale]), curve.method)


def _crossing(n: Array, value: Array, tolerance: float) -> float:
    place = int(first_within(value, tolerance))
    if place == len(n):
        raise BadInput(
            f"The curve ends at n = {n[-1]:.0f} with an error of {value[-1]:.3g} (stated errors "
            f"included), above the {tolerance:.3g} that is needed; compute it for larger n."
        )
    if place == 0:
        return float(n[0])
    # The error is a power of n between two n.
    below = max(float(value[place]), 1e-300)
    share = np.log(value[place - 1] / tolerance) / np.log(value[place - 1] / below)
    return float(np.ceil(n[place - 1] * (n[place] / n[place - 1]) ** share - 1e-9))


def _query_budget(
    head: Head,
    tokens: Tokens,
    x: ArrayLike,
    tolerance: Tolerance,
    *,
    size: float | None,
    method: str,
) -> Budget:
    """Budget of each query x: the smallest n with E|Gamma_n - Gamma|^2 <= delta eps^2 |Gamma|^2.

    The law is evaluated at this n and at its neighbour. `size` replaces |Gamma|. With
    `method="delta"` the mean squared error is the first-order one.
    """
    queries = checks.real_array(x, "x")
    if queries.ndim not in (1, 2) or queries.size == 0:
        raise BadInput(f"x must be one query (d,) or queries (m, d), got shape {queries.shape}.")
    queries = np.atleast_2d(queries)
    sizes = np.linalg.norm(limit(head, tokens)(queries), axis=-1)
    if size is not None:
        sizes = np.full(len(queries), checks.positive(size, "size"))
    elif (sizes < 1e-12 * max(float(sizes.max()), 1e-300)).any() or not sizes.any():
        place = int(np.argmin(sizes))
        raise BadInput(
            f"The limit is zero at query {place}, so that a relative error means nothing there; "
            "give size, what the error is to be compared with."
        )
    spread = fluctuation(head, tokens, queries).covariance
    finite = np.isfinite(spread).all((-1, -2))
    typical = np.full(len(queries), np.inf)
    if finite.any():
        trace = np.trace(spread[finite], axis1=-2, axis2=-1)
        square = (spread[finite] ** 2).sum((-1, -2))
        needed = tolerance.normal_tokens(trace, square, sizes[finite])
        typical[finite] = np.maximum(np.ceil(needed), 2)
    grid = np.unique(np.geomspace(2, MOST, GRID).astype(np.int64))
    errors = pointwise_error(head, tokens, queries, grid, method=method).mse
    certified = []
    for query, error, scale in zip(queries, errors, sizes, strict=True):

        def law(n: int, query: Array = query) -> float:
            return float(pointwise_error(head, tokens, query, [n], method=method).mse[0, 0])

        certified.append(smallest_on_grid(law, grid, error, (tolerance.certified * scale) ** 2))
    source = "exact law" if method == "exact" else "delta method"
    return Budget(tolerance, np.array(certified), typical, sizes, source)
