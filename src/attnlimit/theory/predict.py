"""Theory's curve: the error of a moment of attention at any n, by the method right there."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, overload, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import CubicSpline
from threadpoolctl import threadpool_limits

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.curve import Curve, Diagnostics
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.theory.delta import delta_variance
from attnlimit.theory.law.average import average_pointwise_error
from attnlimit.theory.pairs.covariance.gaussian import covariance_error
from attnlimit.theory.pairs.covariance.population import population_covariance_error
from attnlimit.theory.pairs.error import MeanError
from attnlimit.theory.pairs.mean import mean_error
from attnlimit.theory.pairs.sphere.covariance import sphere_covariance_error
from attnlimit.theory.rates import rate
from attnlimit.tokens import GaussianForm, Sphere, SphericalForm, Tokens

if TYPE_CHECKING:
    from attnlimit.samplers import Sampler

_NEIGHBOUR = 1.25


@runtime_checkable
class PredictsItself(Protocol):
    """Anything that can predict its own curve, such as a captured model."""

    def predict_curve(
        self,
        statistic: str,
        n: ArrayLike | None = None,
        *,
        layer: int = 0,
        head: int = 0,
        sampler: Sampler | None = None,
        method: str = "exact",
    ) -> Curve:
        """The predicted curve of a statistic of one head."""
        ...


@overload
def predict(
    head: Head, /, tokens: Tokens, statistic: str, n: ArrayLike, *, method: str = "exact"
) -> Curve: ...


@overload
def predict(
    capture: PredictsItself,
    /,
    statistic: str,
    n: ArrayLike | None = None,
    *,
    layer: int = 0,
    head: int = 0,
    sampler: Sampler | None = None,
    method: str = "exact",
) -> Curve: ...


# The first argument is positional, so that a captured model can have an option called head.
def predict(subject: Head | PredictsItself, /, *arguments: Any, **options: Any) -> Curve:
    """Theory's curve of a statistic against n: `predict(head, tokens, statistic, n)`.

    Parameters
    ----------
    head : Head
        Or a captured model: `predict(capture, statistic, n, layer=0, head=2, sampler=...)`.
    tokens : Tokens
        They are the queries and the keys.
    statistic : {"mean", "covariance", "pointwise"}
        Mean squared errors: of the mean output E|m_n - m|^2, of the outputs' covariance
        E|Cov_n - Cov|_F^2, of the output at an independent query E|Gamma_n(x) - Gamma(x)|^2.
    n : sequence of int
        Numbers of tokens, each at least 2.
    method : {"exact", "delta"}
        "exact" holds at every n; "delta" is the first-order expansion for large n, for "mean" and
        "pointwise", which needs to know less about the tokens.

    Returns
    -------
    Curve
        With the local rate at each n, the method used and its own numerical error.
    """
    if isinstance(subject, Head):
        checks.call_fits(predict_head, arguments, options, "predict of a head")
        return predict_head(subject, *arguments, **options)
    if isinstance(subject, PredictsItself):
        checks.call_fits(PredictsItself.predict_curve, arguments, options, "predict of a capture")
        return subject.predict_curve(*arguments, **options)
    raise BadInput(f"predict needs a Head or a captured model first, got {type(subject).__name__}.")


def predict_head(
    head: Head, tokens: Tokens, statistic: str, n: ArrayLike, *, method: str = "exact"
) -> Curve:
    """`predict` for a head and the measure of its tokens."""
    if not isinstance(tokens, Tokens):
        raise BadInput(f"tokens must be a token measure, got {type(tokens).__name__}.")
    checks.one_of(method, ("exact", "delta"), "method")
    asymptotic = rate(head, tokens, statistic)
    counts = checks.token_list(n)
    notes = [str(asymptotic)]
    if method == "delta":
        variance, variance_error = delta_variance(head, tokens, statistic)
        value, error = variance / counts, variance_error / counts
        local, used = np.full(len(counts), 0.5), "delta method"
        notes.append("first order in 1/n: right for large n only")
    else:
        used = _METHODS[statistic]
        nodes = _nodes(counts)
        # Pairs of queries run in threads, on small matrices: threads inside would only compete.
        with threadpool_limits(1, "blas"):
            found = _exact(head, tokens, statistic, nodes)
        value, error, local = _smooth_in_n(counts, nodes, *found)
    return Curve(
        statistic=statistic,
        n=counts,
        value=value,
        stderr=np.zeros(len(counts)),
        method=used,
        numerical_error=error,
        rate=local,
        notes=tuple(notes),
        diagnostics=Diagnostics(origin=f"{head!r}, {tokens!r}", horizon=asymptotic.horizon),
    )


_METHODS = {
    "mean": "two-query law",
    "covariance": "exact bias, fluctuation of pairs",
    "pointwise": "exact law, averaged over queries",
}


@lru_cache(maxsize=8)
def _mean_error(head: Head, tokens: Tokens, n: tuple[int, ...]) -> MeanError:
    """The error of the mean, kept for the covariance, which needs it at the same n."""
    return mean_error(head, tokens, np.array(n))


def _exact(head: Head, tokens: Tokens, statistic: str, n: NDArray[np.int64]) -> tuple[Array, Array]:
    """The value at each n, and its numerical error."""
    if statistic == "pointwise":
        return average_pointwise_error(head, tokens, n)
    form, at = tokens.form, tuple(n.tolist())
    if statistic == "mean":
        mean = _mean_error(head, tokens, at)
        return mean.mse, mean.numerical_error
    if isinstance(form, SphericalForm) and form.radial_dim == tokens.dim > 1:
        sphere = Sphere(tokens.dim, form.radius)
        found = sphere_covariance_error(head, sphere, n, _mean_error(head, tokens, at))
    elif isinstance(form, GaussianForm):
        found = covariance_error(head, tokens, n, _mean_error(head, tokens, at))
    else:
        found = population_covariance_error(head, tokens, n)
    return found.mse, found.numerical_error


def _smooth_in_n(
    n: NDArray[np.int64], nodes: NDArray[np.int64], value: Array, error: Array
) -> tuple[Array, Array, Array]:
    """Values, errors and local rates at n, from few nodes: log error is smooth in log n."""
    if not (value > 0).all():  # nothing to fluctuate: a head whose output is constant
        zero = np.zeros(len(n))
        return zero, zero, np.full(len(n), np.nan)
    x, at = np.log(nodes.astype(np.float64)), np.log(n.astype(np.float64))
    curve = CubicSpline(x, np.log(value))
    found = np.exp(curve(at))
    return found, found * np.interp(at, x, error / value), -curve(at, 1) / 2


def _nodes(n: NDArray[np.int64]) -> NDArray[np.int64]:
    """At least four numbers of tokens that span n with a little to spare where there is more."""
    low, high = max(2.0, float(n.min()) / _NEIGHBOUR), max(float(n.max()) * _NEIGHBOUR, 6.0)
    high = min(high, float(checks.MAX_TOKENS))
    count = 4 + int(np.ceil(1.2 * np.log10(high / low)))
    nodes = np.unique(np.round(np.geomspace(low, high, count)).astype(np.int64))
    return nodes if len(nodes) >= 4 else np.arange(nodes[0], nodes[0] + 5)
