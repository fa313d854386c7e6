"""Theory's curve: the error of a moment of attention at any n, by the method right there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, overload, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.curve import Curve, Diagnostics
from attnlimit.errors import BadInput, NotConverged
from attnlimit.head import Head
from attnlimit.theory.covariance import LARGEST_ERROR, covariance_first_order
from attnlimit.theory.delta import delta_variance
from attnlimit.theory.limit import rate
from attnlimit.theory.one_query.pointwise import average_pointwise_error
from attnlimit.theory.two_query.mean import mean_error
from attnlimit.tokens import Tokens

if TYPE_CHECKING:
    from attnlimit.samplers import Sampler

_NEIGHBOUR = 1.05
ROUNDING = 1e-12
"""Values below it may be rounding."""


@runtime_checkable
class PredictsItself(Protocol):
    """Anything that can predict its own curve, such as a captured model."""

    predict_curve: Callable[..., Curve]
    """The predicted curve of a statistic of one head; its signature is that of `predict`."""


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
        "exact" holds at every n; "delta" is the first-order expansion for large n, which needs to
        know less about the tokens. "covariance" is first order either way, refused where the next
        order passes 30 % of it.

    Returns
    -------
    Curve
        With the local rate at each n, the method used and its own numerical error.

    Examples
    --------
    >>> import numpy as np, attnlimit as al
    >>> head, keys = al.Head(0.5 * np.eye(2)), al.Gaussian(dim=2)
    >>> al.predict(head, keys, "mean", [100, 400]).root.round(4)
    array([0.2143, 0.1085])
    """
    if isinstance(subject, Head):
        checks.call_fits(predict_head, arguments, options, "predict of a head")
        return predict_head(subject, *arguments, **options)
    if isinstance(subject, PredictsItself):
        checks.call_fits(type(subject).predict_curve, arguments, options, "predict of a capture")
        return subject.predict_curve(*arguments, **options)
    raise BadInput(f"predict needs a Head or a captured model first, got {type(subject).__name__}.")


def predict_head(
    head: Head, tokens: Tokens, statistic: str, n: ArrayLike, *, method: str = "exact"
) -> Curve:
    """`predict` for a head and the measure of its tokens."""
    checks.one_of(method, ("exact", "delta"), "method")
    asymptotic = rate(head, tokens, statistic)
    counts = checks.token_list(n)
    notes = [str(asymptotic), *_population_note(tokens, counts)]
    if statistic == "covariance":
        with threadpool_limits(1, "blas"):
            covariance = covariance_first_order(head, tokens, counts)
        value, error = covariance.mse, covariance.numerical_error
        local, used = np.full(len(counts), 0.5), "first order (delta method)"
        notes.append("first order in 1/n; the numerical error is the size of the next order")
    elif method == "delta":
        variance, variance_error = delta_variance(head, tokens, statistic)
        value, error = variance / counts, variance_error / counts
        local, used = np.full(len(counts), 0.5), "delta method"
        notes.append("first order in 1/n: right for large n only")
    else:
        used = _METHODS[statistic]
        near = _neighbours(counts)
        distinct, place = np.unique(np.concatenate([counts[None], near]), return_inverse=True)
        # Pairs of queries run in threads, on small matrices: threads inside would only compete.
        with threadpool_limits(1, "blas"):
            values, errors = _exact(head, tokens, statistic, distinct)
        value, *around = values[place.reshape(4, -1)]
        error = errors[place.reshape(4, -1)[0]]
        _check_values(value, error, head, tokens)
        with np.errstate(divide="ignore", invalid="ignore"):  # a constant output has no rate
            local = _local_rate(counts, near, np.sqrt(around))
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


def _population_note(tokens: Tokens, n: NDArray[np.int64]) -> list[str]:
    """A note where more tokens are drawn than were given."""
    atoms = tokens.atoms()
    if atoms is None or n.max() <= len(atoms[0]):
        return []
    return [
        f"n exceeds the {len(atoms[0])} given tokens: these are draws with replacement from them; "
        "of the distribution that they were sampled from, nothing is known at such n"
    ]


_METHODS = {
    "mean": "two-query law",
    "pointwise": "exact law, averaged over queries",
}


def _exact(head: Head, tokens: Tokens, statistic: str, n: NDArray[np.int64]) -> tuple[Array, Array]:
    """The value at each n, and its numerical error."""
    if statistic == "pointwise":
        return average_pointwise_error(head, tokens, n)
    mean = mean_error(head, tokens, n)
    return mean.mse, mean.numerical_error


def _neighbours(n: NDArray[np.int64]) -> NDArray[np.int64]:
    """Three increasing numbers of tokens about each n, itself among them, of shape (3, len(n))."""
    low = np.minimum((n / _NEIGHBOUR).astype(np.int64), n - 1)
    high = np.maximum(np.ceil(n * _NEIGHBOUR).astype(np.int64), n + 1)
    first = np.where(high > checks.MAX_TOKENS, (low / _NEIGHBOUR).astype(np.int64), low)
    inside = np.stack([first, np.where(high > checks.MAX_TOKENS, low, n), high])
    inside[2] = np.where(high > checks.MAX_TOKENS, n, high)
    return np.where(low < 2, np.stack([n, n + 1, n + 2]), inside)


def _local_rate(n: NDArray[np.int64], near: NDArray[np.int64], root: Array) -> Array:
    """-d log(root) / d log n at n, of the parabola through three points (3, len(n)) about it."""
    x, y = np.log(near.astype(np.float64)), np.log(root)
    at = np.log(n.astype(np.float64))
    first, second = np.diff(y, axis=0) / np.diff(x, axis=0)
    curvature = (second - first) / (x[2] - x[0])
    return np.asarray(-(first + curvature * (2 * at - x[0] - x[1])))


def _check_values(value: Array, error: Array, head: Head, tokens: Tokens) -> None:
    """Raise for what is no mean squared error, or is known too roughly.

    NaN, infinite, negative, zero by underflow; errors above 30 %.
    """
    constant = not (head.V @ tokens.sqrt_cov()).any()  # all outputs are equal, the error is zero
    fine = np.isfinite(value) & np.isfinite(error) & ((value > 0) | constant)
    if not fine.all():
        wrong = float(value[~fine][0])
        raise NotConverged(
            f"the predicted mean squared error came out as {wrong:g}: the scores of this head are "
            "too sharp for the law; use measure(head, tokens, statistic, n, replicates).",
            reached=wrong,
        )
    rough = error > LARGEST_ERROR * value + ROUNDING
    if rough.any():
        relative = float((error[rough] / value[rough]).max())
        raise NotConverged(
            f"the average over queries is known to {relative:.0%} only: rare queries carry it; "
            "use measure(head, tokens, statistic, n, replicates).",
            reached=relative,
        )
