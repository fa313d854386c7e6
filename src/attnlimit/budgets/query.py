"""How many tokens does one query need? The smallest n whose exact error fits the promise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from attnlimit import checks
from attnlimit.budgets.enough import aimed, first_place, smallest
from attnlimit.budgets.terms import Terms
from attnlimit.checks import Array
from attnlimit.curve import NORMS, Curve
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.result import Result, table
from attnlimit.theory.fluctuation import fluctuation
from attnlimit.theory.law.pointwise import pointwise_error
from attnlimit.theory.limit import limit
from attnlimit.tokens import Tokens

MOST = 10**12
GRID = 60


@dataclass(frozen=True, eq=False)
class Budget(Result):
    """Tokens for each of m queries, and for the promised share of them.

    Where even 10^12 tokens are not enough, the number is infinite.
    """

    terms: Terms
    certified: Array  # (m,) by the exact law and Chebyshev
    typical: Array  # (m,) by the delta method; no certificate
    size: Array  # (m,) what the error is relative to
    source: str

    @property
    def n(self) -> int:
        """Certified tokens for the share `quantile` of the queries."""
        needed = self.terms.over_queries(self.certified)
        if not np.isfinite(needed):
            raise BadInput(
                f"No n up to {MOST:g} is certified for this share of queries: few keys rule them. "
                "Ask for a larger epsilon, a larger delta or a smaller quantile."
            )
        return int(needed)

    def to_frame(self) -> pd.DataFrame:
        """One row for each query."""
        query = np.arange(len(self.certified))
        return table(query=query, certified=self.certified, typical=self.typical, size=self.size)

    def __str__(self) -> str:
        terms = self.terms
        certified, typical = (terms.over_queries(a) for a in (self.certified, self.typical))
        return (
            f"relative error {terms.epsilon:g} with probability {1 - terms.delta:g} for "
            f"{terms.quantile:.0%} of {len(self.certified)} queries ({self.source}): "
            f"{certified:.6g} tokens certified, {typical:.6g} typical"
        )


def curve_budget(curve: Curve, terms: Terms, *, size: float = 1.0) -> Budget:
    """Smallest n of a curve whose error fits, relative to `size`; straight lines in log-log.

    A mean squared error goes through Chebyshev's inequality, an expected norm through Markov's. A
    measured curve counts with two standard errors added, and certifies no more than that.
    """
    scale = checks.positive(size, "size")
    if len(curve.n) < 1:
        raise BadInput("The curve is empty.")
    order = np.argsort(curve.n)
    value = (curve.value + 2 * curve.stderr)[order]
    n = curve.n[order].astype(np.float64)
    if curve.statistic in NORMS:
        tolerances = [terms.delta * terms.epsilon * scale, terms.typical * scale]
    else:
        tolerances = [(terms.certified * scale) ** 2, (terms.typical * scale) ** 2]
    certified, typical = (np.array([_crossing(n, value, most)]) for most in tolerances)
    return Budget(terms, certified, typical, np.array([scale]), curve.method)


def _crossing(n: Array, value: Array, tolerance: float) -> float:
    place = int(first_place(value, tolerance))
    if place == len(n):
        raise BadInput(
            f"The curve ends at n = {n[-1]:.0f} with an error of {value[-1]:.3g}, above the "
            f"{tolerance:.3g} that is needed; compute it for larger n."
        )
    if place == 0:
        return float(n[0])
    below = max(float(value[place]), 1e-300)
    return float(np.ceil(aimed(n[place - 1], n[place], value[place - 1], below, tolerance) - 1e-9))


def query_budget(
    head: Head,
    tokens: Tokens,
    x: ArrayLike,
    terms: Terms,
    *,
    size: float | None = None,
    method: str = "exact",
) -> Budget:
    """Budget of each query x: the smallest n with E|Gamma_n - Gamma|^2 <= delta eps^2 |Gamma|^2.

    The number is exact: the law is evaluated at it and at its neighbour. `size` replaces |Gamma|.
    With `method="delta"` the mean squared error is the first-order one, for tokens that have no
    exact law.
    """
    queries = np.atleast_2d(checks.real_array(x, "x"))
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
        typical[finite] = np.maximum(np.ceil(terms.normal_tokens(trace, square, sizes[finite])), 2)
    grid = np.unique(np.geomspace(2, MOST, GRID).astype(np.int64))
    errors = pointwise_error(head, tokens, queries, grid, method=method).mse
    certified = []
    for query, error, scale in zip(queries, errors, sizes, strict=True):

        def law(n: int, query: Array = query) -> float:
            return float(pointwise_error(head, tokens, query, [n], method=method).mse[0, 0])

        certified.append(smallest(law, grid, error, (terms.certified * scale) ** 2))
    source = "exact law" if method == "exact" else "delta method"
    return Budget(terms, np.array(certified), typical, sizes, source)
