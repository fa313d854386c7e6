"""Sharpness lam that brings attention over n tokens nearest its target, and schedules of it.

The target is what infinitely sharp scores over infinitely many tokens give. Too small a lam is
biased, too large a one depends on a single token (docs/theory/hardmax.md, section 3).

    python studies/sharpness.py
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import betainc, betaincinv, betaln

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.curve import local_rate
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.theory.limit import check_match
from attnlimit.theory.low_temperature.hardmax import hardmax_error
from attnlimit.theory.one_query.gaussian import MAX_SIGMA
from attnlimit.theory.one_query.pointwise import integrate_score_law, pointwise_error
from attnlimit.tokens import (
    Cube,
    Gaussian,
    GaussianForm,
    IndependentForm,
    ScoreLaw,
    Sphere,
    SphericalForm,
    Tokens,
)
from attnlimit.tokens.score_law import resolved_panels
from tables import write_tables

SHARP = 300.0
"""Past this score range on a sphere only the cap that n tokens reach is given nodes."""
SCHEDULES = ("log", "sqrt-log")
_MAX_CAP_SCORE = 20_000.0
_STEP = 0.35  # in log lam
_DEPTH = 7.0  # how far below the sharpest lam to look, in log lam


@dataclass(frozen=True, eq=False)
class BestSharpness:
    """The lam that minimises the error at each n; infinite where the hard maximum is best."""

    n: NDArray[np.int64]
    lam: Array
    mse: Array
    hardmax_mse: Array

    @property
    def local_rate(self) -> Array:
        """-d log(root error) / d log n at each n."""
        return local_rate(self.n, np.sqrt(self.mse))


@dataclass(frozen=True, eq=False)
class ScheduleError:
    """Error along lam = constant * log n, or constant * sqrt(log n)."""

    constant: float
    n: NDArray[np.int64]
    lam: Array
    mse: Array


def best_sharpness(head: Head, tokens: Tokens, x: ArrayLike, n: ArrayLike) -> BestSharpness:
    """The scale `lam` of the scores that brings attention over `n` tokens nearest its target.

    One query. A sweep over lam shared by all n brackets each minimum, then Brent's method refines
    it; the hard maximum (lam = infinity) is compared last.
    """
    query, counts = _one_query(head, tokens, x, n)
    hard = hardmax_error(head, tokens, query, counts).mse[0]
    tops = np.array([sharpest(head, tokens, query, int(k)) for k in counts])
    grid, values = _sweep(head, tokens, query, counts, tops)
    lam, mse = np.zeros(len(counts)), np.zeros(len(counts))
    for i, k in enumerate(counts):
        best = int(np.nanargmin(values[:, i]))
        last = int(np.flatnonzero(np.isfinite(values[:, i]))[-1])
        bracket = (grid[max(best - 1, 0)], grid[min(best + 1, last)])
        minimum = minimize_scalar(
            lambda v, k=k: np.log(scaled_error(head, tokens, query, np.exp(v), k)[0][0]),
            bounds=np.log(bracket),
            method="bounded",
            options={"xatol": 1e-4},
        )
        lam[i], mse[i] = np.exp([minimum.x, minimum.fun])
        if hard[i] <= mse[i]:
            lam[i], mse[i] = np.inf, hard[i]
    return BestSharpness(counts, lam, mse, hard)


def schedule_error(
    head: Head,
    tokens: Tokens,
    x: ArrayLike,
    n: ArrayLike,
    *,
    kind: str = "log",
    constant: float | None = None,
) -> ScheduleError:
    """Error of attention at one query along a schedule lam_n = constant * log n or sqrt(log n).

    `kind` is "log" or "sqrt-log".
    Without a `constant` the one that minimises the average log error over `n` is taken.
    """
    checks.one_of(kind, SCHEDULES, "kind")
    query, counts = _one_query(head, tokens, x, n)
    log_n = np.log(counts.astype(np.float64))
    shape = log_n if kind == "log" else np.sqrt(log_n)

    def along(factor: float) -> Array:
        pairs = zip(factor * shape, counts, strict=True)
        return np.array([scaled_error(head, tokens, query, v, k)[0][0] for v, k in pairs])

    if constant is not None:
        factor = checks.positive(constant, "constant")
    else:
        tops = [sharpest(head, tokens, query, int(k)) for k in counts]
        high = float(np.log((np.array(tops) / shape).min()))
        if isinstance(tokens.form, SphericalForm):
            high += 3.0  # its law stays cheap far into the frozen range
        minimum = minimize_scalar(
            lambda v: np.log(along(np.exp(v))).mean(),
            bounds=(high - 9, high),
            method="bounded",
            options={"xatol": 1e-3},
        )
        factor = float(np.exp(minimum.x))
    return ScheduleError(factor, counts, factor * shape, along(factor))


def scaled_error(
    head: Head, tokens: Tokens, x: Array, lam: float, n: ArrayLike
) -> tuple[Array, Array]:
    """E|Gamma_n^lam / scale - target|^2 at one query, and |limit / scale - target|, for each n.

    Scores are lam <A x, y>. The target is the exposed point V extreme(A x) of bounded tokens, and
    for Gaussian ones the direction that `hardmax_error` compares with, at scale sqrt(2 log n). The
    limit, of infinitely many tokens, misses it by (d-1)/(2 lam |A x|) on the unit sphere.
    """
    counts = np.atleast_1d(np.asarray(n, dtype=np.int64))
    tilt = head.tilts(x)
    scale = np.ones(len(counts))
    if tokens.is_gaussian:
        scale = np.sqrt(2 * np.log(counts.astype(np.float64)))
    bias, variance = _moments(head, tokens, x, lam, counts)
    limit = tokens.tilted_mean(lam * tilt) @ head.V.T
    target = hardmax_error(head, tokens, x, [2]).target[0]
    shift = limit / scale[:, None] - target
    mse = ((bias / scale[:, None] + shift) ** 2).sum(axis=1) + variance / scale**2
    return mse, np.linalg.norm(shift, axis=1)


def sharpest(head: Head, tokens: Tokens, x: Array, n: int) -> float:
    """A lam so large that the best of n tokens takes all the weight, or as far as laws reach."""
    t, form = head.tilts(x), tokens.form
    score_std = float(np.linalg.norm(tokens.sqrt_cov() @ t))
    if not score_std > 0:
        raise BadInput("the scores of a query do not vary over these tokens; leave that query out.")
    if isinstance(form, GaussianForm):
        return min(MAX_SIGMA, 8 * np.sqrt(2 * np.log(n))) / score_std
    if isinstance(form, SphericalForm) and form.radial_dim > 1:
        half = (form.radial_dim - 1) / 2
        # From the best token to the next the gap grows by a factor of about 1 + 1/half.
        kappa = 6 * half / (2 * float(betaincinv(half, half, 1 / n)))
        return kappa / (form.radius * float(np.linalg.norm(t)))
    return (20 if isinstance(form, IndependentForm) else 60) / score_std


def _moments(
    head: Head, tokens: Tokens, x: Array, lam: float, n: NDArray[np.int64]
) -> tuple[Array, Array]:
    """E Gamma_n - Gamma, and the trace of Gamma_n's covariance, with scores scaled by lam."""
    t, form = lam * head.tilts(x), tokens.form
    size = float(np.linalg.norm(t))
    if isinstance(form, SphericalForm) and form.radial_dim > 1 and form.radius * size > SHARP:
        limit = tokens.tilted_mean(t) @ head.V.T
        mse, bias, _ = integrate_score_law(cap_law(form, t, n), head.V, limit, n)
        return bias, mse - (bias**2).sum(axis=1)
    exact = pointwise_error(head.scaled(lam), tokens, x, n)
    return exact.bias[0], exact.mse[0] - (exact.bias[0] ** 2).sum(axis=1)


def cap_law(form: SphericalForm, t: Array, n: NDArray[np.int64]) -> ScoreLaw:
    """Score law with nodes only in the cap that matters; all the mass below is one node.

    Some of the fewest n tokens are in the cap of probability 25/n but for probability e^-25, and
    a token whose score is 150 below that cap's edge has no weight.
    """
    half = (form.radial_dim - 1) / 2
    norm = float(np.linalg.norm(t))
    kappa = form.radius * norm
    few, many = float(n.min()), float(n.max())
    first = 2 * float(betaincinv(half, half, 1e-18 / many))
    typical = 2 * float(betaincinv(half, half, min(25 / few, 1 - 1e-9)))
    last = min(typical + 150 / kappa, 2.0)
    if kappa * last > _MAX_CAP_SCORE:
        raise BadInput(
            f"scores spread over {kappa * last:.3g} among the best of n = {few:.0f} tokens: "
            "attention is a hard maximum there, use hardmax_error."
        )
    edges = [first]
    ratio = np.expm1(min(1.5 / half, 1.0))
    while edges[-1] < last:
        edges.append(edges[-1] + min(ratio * edges[-1], 2 / kappa))
    edges[-1] = last
    gap, width = resolved_panels(np.array(edges))
    log_density = (half - 1) * np.log(gap * (2 - gap) / 4) - betaln(half, half) - np.log(2)
    weight = width * np.exp(log_density)
    rest = float(1 - betainc(half, half, last / 2))
    gap, weight = np.append(gap, last), np.append(weight, rest)
    unit = t / norm
    across = form.radius**2 * gap * (2 - gap) / (form.radial_dim - 1)
    return ScoreLaw.build(
        score=-kappa * gap,  # counted from the top: kappa itself may be too large to add
        weight=weight,
        coefficients=form.radius * (1 - gap)[:, None],
        basis=unit[None],
        spread=across[:, None],
        spread_cov=(np.eye(len(t)) - np.outer(unit, unit))[None],
    )


def _one_query(
    head: Head, tokens: Tokens, x: ArrayLike, n: ArrayLike
) -> tuple[Array, NDArray[np.int64]]:
    check_match(head, tokens)
    rows = checks.query_rows(x, head.query_dim)
    if len(rows) > 1:
        raise BadInput(f"x must be a single query, but its shape is {rows.shape}.")
    if not np.linalg.norm(head.tilts(rows[0])) > 0:
        raise BadInput("A x is zero at a query, so all scores are equal; leave that query out.")
    return rows[0], checks.token_list(n)


def _sweep(
    head: Head, tokens: Tokens, query: Array, n: NDArray[np.int64], tops: Array
) -> tuple[Array, Array]:
    """Errors on a grid of lam, for the n whose range it is in (NaN else): one sweep serves all."""
    low = np.log(tops) - _DEPTH
    grid = np.exp(np.arange(low.min(), np.log(tops.max()) + _STEP, _STEP))
    values = np.full((len(grid), len(n)), np.nan)
    for i, lam in enumerate(grid):
        here = (np.log(lam) >= low) & (lam <= tops)
        if here.any():
            values[i, here] = scaled_error(head, tokens, query, lam, n[here])[0]
    return grid, values


FAR = [10**3, 10**6, 10**9, 10**12]


def best_of_n() -> pd.DataFrame:
    """Root mean squared errors of the best of n tokens, and their leading behaviour."""
    rows, n = [], [100, 10**4, 10**6, 10**9, 10**12]
    kinds: list[tuple[str, Tokens]] = [
        ("Gaussian", Gaussian(dim=50)),
        ("Sphere", Sphere(3)),
        ("Sphere", Sphere(50)),
        ("Cube", Cube(3)),
        ("Cube", Cube(50)),
    ]
    for name, tokens in kinds:
        error = hardmax_error(Head(np.eye(tokens.dim)), tokens, np.ones(tokens.dim), n)
        leading = np.sqrt(error.predicted_mse[0])
        cells = [f"{a:.4g} ({b:.4g})" for a, b in zip(error.root[0], leading, strict=True)]
        shown = {f"n = {k:.0e}": cell for k, cell in zip(n, cells, strict=True)}
        rows.append({"tokens": f"{name}, d = {tokens.dim}"} | shown)
    return pd.DataFrame(rows)


def on_spheres() -> pd.DataFrame:
    """Least errors on spheres, the sharpness there, and the rate at the largest n."""
    rows = []
    for dim in (3, 5, 10, 50):
        best = best_sharpness(Head(np.eye(dim)), Sphere(dim), np.eye(dim)[0], FAR)
        pairs = zip(FAR, np.sqrt(best.mse), best.lam, strict=True)
        shown = {f"n = {n:.0e}": f"{error:.3g} (λ = {lam:.3g})" for n, error, lam in pairs}
        rate = {"local rate at 1e+12": best.local_rate[-1], "2/(d+1)": 2 / (dim + 1)}
        hard = {"hard maximum at 1e+12": np.sqrt(best.hardmax_mse[-1])}
        rows.append({"d": dim} | shown | rate | hard)
    return pd.DataFrame(rows)


def of_gaussian_tokens() -> pd.DataFrame:
    """Best sharpness of five-dimensional normal tokens, over that where scores freeze."""
    best = best_sharpness(Head(np.eye(5)), Gaussian(dim=5), np.eye(5)[0], FAR)
    freeze = np.sqrt(2 * np.log(FAR))
    lines = {"λσ/√(2 log n)": best.lam / freeze, "error": np.sqrt(best.mse)}
    rows = [
        {"at the best λ": name} | {f"n = {n:.0e}": v for n, v in zip(FAR, values, strict=True)}
        for name, values in lines.items()
    ]
    return pd.DataFrame(rows)


if __name__ == "__main__":
    write_tables(
        {
            "best-of-n": best_of_n(),
            "best-sharpness": on_spheres(),
            "gaussian-sharpness": of_gaussian_tokens(),
        }
    )
