"""Delta method: fluctuations of attention about its limit for large n.

At one query, and averaged over queries drawn as tokens are (docs/theory/fluctuations.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput, NoLimitError
from attnlimit.head import Head
from attnlimit.result import Result, table
from attnlimit.theory.limit import check_match
from attnlimit.theory.moments import WhitenedHead, mean_covariance_with_error
from attnlimit.tokens import IndependentForm, Tokens

_LARGEST_LOG = 600.0


@dataclass(frozen=True, eq=False)
class Fluctuation(Result):
    """sqrt(n) (Gamma_n - Gamma) tends to N(0, covariance); n (E Gamma_n - Gamma) to bias.

    Both are infinite where the CGF is infinite at twice the tilt, though the limit exists.
    `effective_fraction` times n is the effective number of tokens at the query.
    """

    covariance: Array  # (..., d_v, d_v)
    bias: Array  # (..., d_v)
    effective_fraction: Array  # (...,)

    def headline(self) -> str:
        """What the columns are."""
        return "attention about its limit for large n: variance over n, |bias| over n"

    def to_frame(self) -> pd.DataFrame:
        """One row for each query: trace of the covariance, |bias|, effective share of tokens."""
        variance = np.trace(self.covariance, axis1=-2, axis2=-1)
        size = np.linalg.norm(self.bias, axis=-1)
        share = np.atleast_1d(self.effective_fraction)
        return table(
            query=np.arange(share.size),
            variance=np.ravel(variance),
            bias=np.ravel(size),
            effective_fraction=share.ravel(),
        )


def fluctuation(head: Head, tokens: Tokens, x: ArrayLike) -> Fluctuation:
    """The central limit theorem of attention at each query x.

    C(x) = e^{K(2t) - 2K(t)} V [Hess K(2t) + dd'] V', d = grad K(2t) - grad K(t), t = A x.

    Examples
    --------
    >>> import numpy as np, attnlimit as al
    >>> al.fluctuation(al.Head(np.eye(2)), al.Gaussian(dim=2), [1.0, 0.0]).covariance.round(3)
    array([[5.437, 0.   ],
           [0.   , 2.718]])
    """
    check_match(head, tokens)
    tilts = head.tilts(x)
    tokens.cgf(tilts)  # raises NoLimitError where there is nothing to fluctuate about
    flat = tilts.reshape(-1, head.key_dim)
    parts = [_at(head, tokens, t) for t in flat]
    shape = tilts.shape[:-1]
    size = head.value_dim
    return Fluctuation(
        covariance=np.array([p[0] for p in parts]).reshape(*shape, size, size),
        bias=np.array([p[1] for p in parts]).reshape(*shape, size),
        effective_fraction=np.array([p[2] for p in parts]).reshape(shape),
    )


def _at(head: Head, tokens: Tokens, t: Array) -> tuple[Array, Array, float]:
    size = head.value_dim
    try:
        log_crowding = float(tokens.cgf(2 * t) - 2 * tokens.cgf(t))
    except NoLimitError:
        return np.full((size, size), np.inf), np.full(size, np.inf), 0.0
    if log_crowding > _LARGEST_LOG:
        raise BadInput(
            f"the first-order variance at a query overflows: it is of order e^{log_crowding:.0f}; "
            "give a shorter query or scale the head down."
        )
    crowding = np.exp(log_crowding)
    shift = tokens.tilted_mean(2 * t) - tokens.tilted_mean(t)
    moment = tokens.tilted_cov(2 * t) + np.outer(shift, shift)
    covariance = crowding * (head.V @ moment @ head.V.T)
    return covariance, -crowding * (head.V @ shift), float(np.exp(-log_crowding))


def delta_variance(head: Head, tokens: Tokens, statistic: str) -> tuple[float, float]:
    """n times the mean squared error for large n, and its numerical error.

    BadInput for a statistic without one, and where it is infinite: the error then falls slower.
    """
    checks.one_of(statistic, ("mean", "pointwise"), 'a statistic with method="delta"')
    if statistic == "mean":
        covariance, gap = mean_covariance_with_error(head, tokens)
        variance = float(np.trace(covariance))
        error = gap * variance if np.isfinite(variance) else 0.0
    elif tokens.is_gaussian:
        variance, error = _gaussian_pointwise(WhitenedHead.of(head, tokens)), 0.0
    else:

        def at(queries: Array) -> Array:
            return np.trace(fluctuation(head, tokens, queries).covariance, axis1=-2, axis2=-1)

        average, spread = average_over_queries(tokens, at)
        variance, error = float(average), float(spread)
    if not np.isfinite(variance):
        raise BadInput(
            f"the first-order variance of the {statistic} error is infinite for this head: it "
            'falls slower than 1/n, use method="exact".'
        )
    return variance, error


def _gaussian_pointwise(white: WhitenedHead) -> float:
    """E e^{|b|^2} (tr M + b'Mb) over tilts b ~ N(offset, Q); infinite where Q reaches 1/2."""
    spectrum, axes = np.linalg.eigh(white.tilt_cov)
    if spectrum[-1] >= 0.5:
        return np.inf
    narrowed = 1 / (1 - 2 * spectrum)
    offset = axes.T @ white.offset
    metric = axes.T @ white.metric @ axes
    centre = narrowed * offset
    energy = np.trace(metric) + np.diag(metric) @ (spectrum * narrowed) + centre @ metric @ centre
    return float(np.exp(np.log(narrowed).sum() / 2 + offset @ centre) * energy)


EXACT_QUERIES = 128
SLOW_QUERIES = 16


def average_over_queries(tokens: Tokens, at: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Average of at(queries), (m, ...), over queries drawn as tokens are, and its error.

    All of few tokens, evenly spaced ones of many, quasi-random ones of a measure.
    """
    atoms = tokens.atoms()
    slow = isinstance(tokens.form, IndependentForm)
    points, weights = tokens.rule(SLOW_QUERIES if slow else EXACT_QUERIES)
    count = len(weights)
    most = count if atoms is None else min(count, 4 * EXACT_QUERIES)
    rows = np.unique(np.linspace(0, count - 1, most).astype(int))
    share = weights[rows] / weights[rows].sum()
    values = at(points[rows])
    average = share @ values
    spread = np.sqrt(share**2 @ (values - average) ** 2)
    return average, spread if atoms is None or most < count else np.zeros_like(average)
