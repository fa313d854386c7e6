"""Rates beta of root error ~ n^-beta, fitted to curves, with their errors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from scipy.stats import chi2

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.curve import NORMS, Curve
from attnlimit.errors import BadInput, UnreliableFit
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result, table

MIN_POINTS = 4
MIN_REPLICATES = 4
BOOTSTRAP = 4000
HEAVY_LEVEL = 0.01
"""Probability that squares of normal numbers are called heavy-tailed."""
LEAST_ERROR = 1e-9
"""Relative error of a theory's point that states none."""


@dataclass(frozen=True, eq=False)
class RateFit(Result, Pictured):
    """The rate beta of root error ~ n^-beta, fitted over a range of n.

    Attributes
    ----------
    beta, stderr : float
        The slope, and its standard error from the joint covariance of the points; for a curve by
        theory from its numerical errors and the scatter of the points about the line.
    chi_square, freedom, p_value : float
        How well a straight line fits; a small p-value says that the curve bends, and beta is then
        an average slope over the range.
    predicted : float or None
        The slope that the same fit gives on theory's curve at the same n.
    predicted_error : float or None
        What theory's own errors at these n make of that slope, taken as independent.
    heavy_tailed : bool
        Whether one draw carries more of the variance than squares of normal numbers have in 99 of
        100 measurements: the interval is then too short.
    """

    statistic: str
    beta: float
    stderr: float
    chi_square: float
    freedom: int
    p_value: float
    predicted: float | None
    predicted_error: float | None
    heavy_tailed: bool
    n_range: tuple[int, int]
    bootstrap: Array

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Interval for beta by parametric bootstrap of the points."""
        tail = (1 - checks.probability(level, "level")) / 2
        low, high = np.quantile(self.bootstrap, [tail, 1 - tail])
        return float(low), float(high)

    def to_frame(self) -> pd.DataFrame:
        """One row with the fit."""
        low, high = self.interval()
        return table(
            statistic=self.statistic,
            beta=self.beta,
            stderr=self.stderr,
            low=low,
            high=high,
            predicted=np.nan if self.predicted is None else self.predicted,
            predicted_error=np.nan if self.predicted_error is None else self.predicted_error,
            p_value=self.p_value,
            heavy_tailed=self.heavy_tailed,
        )

    def panel(self) -> Panel:
        """The fitted slope with its 95 % interval, beside the one that theory predicts."""
        low, high = self.interval()
        series = [
            Series([low, high], [0, 0], "line", "95 % interval", "fit"),
            Series([self.beta], [0], "points", f"fitted {self.beta:.4f}", "fit"),
        ]
        if self.predicted is not None:
            label = f"predicted {self.predicted:.4f}"
            series.append(Series([self.predicted] * 2, [-1, 1], "dashed", label, "theory"))
        title = f"{self.statistic}: rate for n from {self.n_range[0]} to {self.n_range[1]}"
        return Panel(title, "rate β of root error ~ n^-β", "", series, "linear", "linear")

    def __str__(self) -> str:
        low, high = self.interval()
        lines = [
            f"{self.statistic}: beta = {self.beta:.4f} ± {self.stderr:.4f} "
            f"(95% interval {low:.4f} to {high:.4f}) for n from {self.n_range[0]} to "
            f"{self.n_range[1]}"
        ]
        if self.predicted is not None:
            own = f" ± {self.predicted_error:.4f}" if self.predicted_error else ""
            lines.append(f"predicted over the same range: {self.predicted:.4f}{own}")
        lines.append(
            f"chi-square {self.chi_square:.1f} on {self.freedom} degrees (p = {self.p_value:.2g})"
        )
        if self.heavy_tailed:
            lines.append("heavy tail: a few draws carry the variance; the interval is too short")
        return "\n".join(lines)


def fit_rate(curve: Curve, *, predicted: Curve | None = None) -> RateFit:
    """Fit a rate to a curve: least squares of log(root error) on log n.

    All points count the same: the slope of a curve that bends depends on their weights, and weights
    from the draws would bring noise that no standard error has. The standard error, the interval
    and the goodness of fit use the joint covariance of the points, which share their draws.

    Parameters
    ----------
    curve : Curve
    predicted : Curve, optional
        Theory's curve of the same statistic at the same n, fitted in the same way.

    Raises
    ------
    UnreliableFit
        With fewer than four points or draws, or values that are not above their noise.
    BadInput
        If `curve` is no Curve, or `predicted` one of other n.

    Examples
    --------
    >>> import numpy as np, attnlimit as al
    >>> head, keys = al.Head(0.5 * np.eye(2)), al.Gaussian(dim=2)
    >>> curve = al.measure(head, keys, "mean", [100, 200, 400, 800], replicates=100, seed=0)
    >>> abs(al.fit_rate(curve).beta - 0.5) < 0.1
    True
    """
    if not isinstance(curve, Curve):
        raise BadInput(f"fit_rate needs a Curve, got {type(curve).__name__}.")
    points = len(curve.n)
    if points < MIN_POINTS:
        raise UnreliableFit(f"A rate needs at least {MIN_POINTS} values of n, got {points}.")
    if curve.replicates is not None and curve.replicates < MIN_REPLICATES:
        raise UnreliableFit(
            f"A rate needs at least {MIN_REPLICATES} draws, got {curve.replicates}."
        )
    if not np.isfinite(curve.value).all() or (curve.value <= 0).any():
        raise UnreliableFit("A rate needs positive, finite errors at every n.")
    measured = bool((curve.stderr > 0).all())
    covariance = _covariance(curve)
    if measured and (curve.stderr > curve.value / 2).any():
        worst = int(np.argmax(curve.stderr / curve.value))
        raise UnreliableFit(
            f"At n = {curve.n[worst]} the standard error is "
            f"{curve.stderr[worst] / curve.value[worst]:.0%} of the value; draw more replicates."
        )
    half = 1.0 if curve.statistic in NORMS else 0.5
    log_n = np.log(curve.n.astype(np.float64))
    log_root = half * np.log(curve.value)
    log_covariance = half**2 * covariance / np.outer(curve.value, curve.value)
    design = np.stack([np.ones(points), -log_n], axis=1)
    solve = np.asarray(np.linalg.pinv(design))
    beta = float(solve[1] @ log_root)
    residual = log_root - design @ (solve @ log_root)
    chi_square, freedom = _goodness(residual, log_covariance, design @ solve)
    variance = float(solve[1] @ log_covariance @ solve[1])
    if measured:
        bootstrap = _bootstrap(curve, covariance, half, solve[1])
    else:  # points off the line are no noise, but make the slope depend on where they are
        variance += float((residual**2).sum() / (points - 2) * (solve[1] ** 2).sum())
        noise = np.random.default_rng(0).standard_normal(BOOTSTRAP)
        bootstrap = beta + np.sqrt(variance) * noise
    share = curve.diagnostics.largest_share
    heavy = False
    if share is not None and curve.replicates is not None:
        heavy = bool((share > heavy_share(curve.replicates, points)).any())
    slope, slope_error = _predicted(predicted, curve, solve[1])
    return RateFit(
        statistic=curve.statistic,
        beta=beta,
        stderr=float(np.sqrt(variance)),
        chi_square=chi_square,
        freedom=freedom,
        p_value=float(chi2.sf(chi_square, freedom)) if freedom else 1.0,
        predicted=slope,
        predicted_error=slope_error,
        heavy_tailed=heavy,
        n_range=(int(curve.n[0]), int(curve.n[-1])),
        bootstrap=bootstrap,
    )


@lru_cache(maxsize=64)
def heavy_share(draws: int, points: int) -> float:
    """Share of the variance in one draw that squares of normal numbers pass once in a hundred.

    At the largest of `points` n, over `draws` draws: with few draws one carries most of the
    variance whatever the tail, so that nothing is said of it.
    """
    draws = min(draws, 1000)  # the share falls with the draws: more are judged with caution
    squares = np.random.default_rng(0).standard_normal((4000, draws)) ** 2
    deviations = (squares - squares.mean(axis=1, keepdims=True)) ** 2
    shares = deviations.max(axis=1) / deviations.sum(axis=1)
    return float(np.quantile(shares, 1 - HEAVY_LEVEL / points))


def _covariance(curve: Curve) -> Array:
    """Joint covariance of the points: of the draws, or by the theory's numerical errors."""
    if curve.covariance is not None:
        return curve.covariance
    own = 0.0 if curve.numerical_error is None else curve.numerical_error
    errors = np.hypot(np.maximum(curve.stderr, LEAST_ERROR * curve.value), own)
    return np.asarray(np.diag(errors**2))


def _goodness(residual: Array, covariance: Array, fitted: Array) -> tuple[float, int]:
    """Chi-square of the residuals under their own covariance, and its degrees of freedom."""
    projection = np.eye(len(residual)) - fitted
    values, vectors = np.linalg.eigh(projection @ covariance @ projection.T)
    kept = values > 1e-9 * values.max()
    chi_square = ((residual @ vectors)[kept] ** 2 / values[kept]).sum()
    return float(chi_square), min(len(residual) - 2, int(kept.sum()))


def _bootstrap(curve: Curve, covariance: Array, half: float, row: Array) -> Array:
    """Slopes of curves drawn from Student's law of the points."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    root = vectors * np.sqrt(np.maximum(values, 0))
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((BOOTSTRAP, len(curve.value))) @ root.T
    if curve.replicates is not None:
        freedom = float(curve.freedom.min())
        noise /= np.sqrt(rng.chisquare(freedom, (BOOTSTRAP, 1)) / freedom)
    drawn = np.maximum(curve.value + noise, 1e-3 * curve.value)
    return np.asarray((half * np.log(drawn)) @ row)


def _predicted(
    predicted: Curve | None, curve: Curve, row: Array
) -> tuple[float | None, float | None]:
    """Theory's slope, and its own error."""
    if predicted is None:
        return None, None
    if predicted.statistic != curve.statistic or not np.array_equal(predicted.n, curve.n):
        raise BadInput("predicted must be a curve of the same statistic at the same n.")
    relative = predicted.root_numerical_error / predicted.root
    return float(row @ np.log(predicted.root)), float(np.linalg.norm(row * relative))
