"""How large is an error for large n, to first order? Its variance over one token, averaged."""

from __future__ import annotations

import numpy as np

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.theory.moments import WhitenedHead, mean_covariance_with_error
from attnlimit.theory.one_query.average import average_over_queries
from attnlimit.theory.one_query.pointwise import pointwise_error
from attnlimit.tokens import Tokens


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
            return pointwise_error(head, tokens, queries, [2], method="delta").mse * 2

        found, spread = average_over_queries(tokens, at)
        variance, error = float(found[0]), float(spread[0])
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
