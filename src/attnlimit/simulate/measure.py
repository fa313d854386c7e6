"""Monte Carlo measurement of the error of attention over n tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, overload, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from attnlimit import checks
from attnlimit.curve import Curve, Diagnostics
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.samplers import Sampler
from attnlimit.simulate.fit import heavy_share
from attnlimit.simulate.independent import participations, pointwise_errors, supremum_errors
from attnlimit.simulate.statistics import NORMS, SQUARED
from attnlimit.simulate.summary import summarise
from attnlimit.simulate.sweep import Samples, sweep
from attnlimit.theory.limit import check_ball, check_limit, check_match
from attnlimit.tokens import Tokens

STATISTICS = (*SQUARED, *NORMS, "pointwise", "uniform", "participation")


@runtime_checkable
class MeasuresItself(Protocol):
    """Anything that can measure its own curve, such as a captured model."""

    measure_curve: Callable[..., Curve]
    """The measured curve of a statistic of one head; its signature is that of `measure`."""


@overload
def measure(
    head: Head,
    /,
    tokens: Tokens,
    statistic: str,
    n: ArrayLike,
    replicates: int,
    seed: int = 0,
    *,
    x: ArrayLike | None = None,
    radius: float | None = None,
    queries: int | str | None = None,
    control: bool = True,
) -> Curve: ...


@overload
def measure(
    capture: MeasuresItself,
    /,
    statistic: str,
    n: ArrayLike | None = None,
    replicates: int = 500,
    seed: int = 0,
    *,
    layer: int = 0,
    head: int = 0,
    sampler: Sampler | None = None,
) -> Curve: ...


# The first argument is positional, so that a captured model can have an option called head.
def measure(subject: Head | MeasuresItself, /, *arguments: Any, **options: Any) -> Curve:
    """Measure a statistic: `measure(head, tokens, statistic, n, replicates, seed=0)`.

    Parameters
    ----------
    head : Head
        Or a captured model: `measure(capture, statistic, n, replicates=500, layer=0, head=2)`.
    tokens : Tokens
        Where the n tokens come from. In "mean" and "covariance" all n are queries and keys.
    statistic : str
        "mean", "covariance" and "pointwise" are mean squared errors; "mean_norm" and
        "covariance_norm" are expected norms; "uniform" is the expected largest error over the ball
        |x| <= `radius`. "participation" is the expected sum of a query's squared weights, which
        needs no limit to compare with.
    n : array of int
        Numbers of tokens; one draw of the largest serves all of them.
    replicates : int
        Independent draws, at least two. Where n is small a draw of "mean", "covariance" or a norm
        is an average over several sets of tokens.
    seed : int
        The same seed gives the same draws for every head and statistic.
    x : (m, d) array, optional
        Queries of "pointwise" and "participation"; the tokens' law by default. `diagnostics` has
        the bias of "pointwise" at each.
    radius : float, optional
        Radius of the ball of "uniform".
    queries : int or "all", optional
        Number of the n tokens that are queries. By default all of them for norms, and for squared
        errors enough for an unbiased value at the least cost.
    control : bool
        Use control variates of known mean. They never bias the value, and cut its noise.

    Returns
    -------
    Curve
        With standard errors and their joint covariance over n, and `interval` for a level.
        `diagnostics` has the variance reduction of the controls, the share of the variance of the
        largest draw and the skewness of the draws.

    Raises
    ------
    NoLimitError
        If the tokens have no infinite-token limit to compare with; BadInput if it is not known.

    Examples
    --------
    >>> import numpy as np, attnlimit as al
    >>> head, keys = al.Head(0.5 * np.eye(2)), al.Gaussian(dim=2)
    >>> curve = al.measure(head, keys, "mean", [100, 400], replicates=50, seed=0)
    >>> curve.n, bool((curve.stderr > 0).all())
    (array([100, 400]), True)
    """
    if isinstance(subject, Head):
        checks.call_fits(measure_head, arguments, options, "measure of a head")
        return measure_head(subject, *arguments, **options)
    if isinstance(subject, MeasuresItself):
        checks.call_fits(type(subject).measure_curve, arguments, options, "measure of a capture")
        return subject.measure_curve(*arguments, **options)
    raise BadInput(f"measure needs a Head or a captured model first, got {type(subject).__name__}.")


def measure_head(
    head: Head,
    tokens: Tokens,
    statistic: str,
    n: ArrayLike,
    replicates: int,
    seed: int = 0,
    *,
    x: ArrayLike | None = None,
    radius: float | None = None,
    queries: int | str | None = None,
    control: bool = True,
) -> Curve:
    """`measure` for a head and the measure of its tokens."""
    if not isinstance(tokens, Tokens):
        raise BadInput(f"tokens must be a token measure, got {type(tokens).__name__}.")
    checks.one_of(statistic, STATISTICS, "statistic")
    grid = checks.token_counts(n).ravel()
    if (np.diff(grid) <= 0).any():
        raise BadInput(f"n must increase, got {grid.tolist()}; sort it and drop repeats.")
    draws = checks.count(replicates, "replicates", smallest=2)
    root = np.random.SeedSequence(checks.count(seed, "seed", smallest=0))
    check_match(head, tokens, self_attention=True)
    if (radius is None) == (statistic == "uniform"):
        raise BadInput("give radius, that of the ball of queries, with 'uniform' only.")
    if x is not None and statistic not in ("pointwise", "participation"):
        raise BadInput("give x, the queries, with 'pointwise' and 'participation' only.")
    points = None if x is None else np.atleast_2d(checks.vectors(x, tokens.dim, "x"))
    if statistic == "participation":
        values = participations(head, tokens, points, grid, draws, root)
        return samples_curve(Samples(statistic, grid, values))
    if statistic == "uniform":
        ball = checks.positive(radius, "radius")
        check_ball(head, tokens, ball)
        values, shortfalls = supremum_errors(head, tokens, ball, grid, draws, root)
        curve = samples_curve(
            Samples(statistic, grid, values), f"largest error over |x| <= {ball:g}"
        )
        return replace(curve, numerical_error=shortfalls.mean(axis=0))
    if x is None:
        check_limit(head, tokens)
    if statistic == "pointwise":
        squares, errors = pointwise_errors(head, tokens, points, grid, draws, root)
        errors = errors.mean(axis=2) if x is None else errors
        curve = samples_curve(Samples(statistic, grid, squares))
        spread = errors.std(axis=0, ddof=1) / np.sqrt(draws)
        diagnostics = replace(curve.diagnostics, bias=errors.mean(axis=0), bias_stderr=spread)
        return replace(curve, diagnostics=diagnostics)
    query_count = _query_count(queries, statistic)
    drawn = sweep(head, tokens, [statistic], grid, draws, root, queries=query_count)
    return samples_curve(drawn[statistic], control=control)


def samples_curve(samples: Samples, *notes: str, control: bool = True) -> Curve:
    """Summarise the draws of a sweep as a curve."""
    values = samples.values
    summary = summarise(samples, control=control)
    deviations = (values - values.mean(axis=0)) ** 2
    total = deviations.sum(axis=0)
    share = np.divide(deviations.max(axis=0), total, out=np.zeros_like(total), where=total > 0)
    if samples.reference_error:
        notes += (f"the reference is known to {samples.reference_error:.2g} (norm)",)
    if (share > heavy_share(len(values), len(samples.n))).any():
        notes += (f"heavy tail: one draw carries up to {share.max():.0%} of the variance",)
    return Curve(
        statistic=samples.statistic,
        n=samples.n,
        value=summary.value,
        stderr=summary.stderr,
        method="monte carlo",
        covariance=summary.covariance,
        replicates=len(values),
        notes=notes,
        diagnostics=Diagnostics(
            variance_reduction=summary.variance_reduction,
            largest_share=share,
            skewness=summary.skewness,
            kurtosis=summary.kurtosis,
        ),
    )


def _query_count(queries: int | str | None, statistic: str) -> int | None:
    if queries is None and statistic in SQUARED:
        return None
    if queries is None or queries == "all":
        return checks.MAX_TOKENS
    return checks.count(queries, "queries", smallest=4)
