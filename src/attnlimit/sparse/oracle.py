"""Errors with the signal known: of the Bayes rule and of each classifier, and strengths needed.

With x_l = <X_l, xi> the likelihood ratio is the average over supports of prod e^{theta x_l -
theta^2/2}: an elementary symmetric polynomial (docs/theory/sparse-oracle.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, SupportsFloat

import numpy as np
import pandas as pd
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit, gammaln, log_ndtr, ndtr

from attnlimit.checks import Array, count, one_of, probability
from attnlimit.errors import BadInput
from attnlimit.result import Result
from attnlimit.sparse.quadrature import BagScores, bag_scores, check_points, log_truncated_mgf
from attnlimit.sparse.task import MODELS, SparseTask, check_task
from attnlimit.threads import small_matrices


class Number(NDArrayOperatorsMixin):
    """Base of results with a `value`: float(), round(), comparison and arithmetic use it alone."""

    value: float

    def __float__(self) -> float:
        return self.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __round__(self, digits: int | None = None) -> float:
        return round(self.value, digits)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.value, dtype=dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        plain = (x.value if isinstance(x, Number) else x for x in inputs)
        return getattr(ufunc, method)(*plain, **options)


@dataclass(frozen=True, eq=False)
class ErrorRate(Number, Result):
    """An error probability with its numerical error, the method, and the rule that attains it."""

    value: float
    numerical_error: float
    method: str
    details: Mapping[str, float] = field(default_factory=dict)

    def to_frame(self) -> pd.DataFrame:
        """One row: error, numerical_error, method and the details."""
        row = {"error": self.value, "numerical_error": self.numerical_error, "method": self.method}
        return pd.DataFrame([{**row, **self.details}])

    def __str__(self) -> str:
        return f"{self.value:.6g} (numerical error {self.numerical_error:.0e}, {self.method})"


X_NODES = 401
X_RANGE = 12.0
LARGEST_SHIFT = 3.5
"""A contour moved further than this into the complex plane loses more than three digits."""
ComplexArray = NDArray[np.complex128]


@small_matrices()
def bayes_error(task: SparseTask, *, log2_points: int = 14, replicates: int = 4) -> ErrorRate:
    """Return the Bayes error: xi, theta, R and the prior known, the support not.

    One signal: the distribution of a sum of L lognormals, by Fourier inversion on a rotated
    contour, at any L, to 1e-6 or better. More signals: quasi-random draws of the posterior's
    smaller probability, `replicates` independent scrambles giving the numerical error.

    Examples
    --------
    >>> from attnlimit.sparse import SparseTask, bayes_error
    >>> round(bayes_error(SparseTask(10, 1, 5.0)).value, 4)
    0.0178
    """
    check_task(task)
    log2_points = check_points(log2_points)
    replicates = count(replicates, "replicates")
    if task.strength == 0:
        return ErrorRate(task.guess, 0.0, "closed form")
    inverted = _one_signal(task) if task.signals == 1 else None
    if inverted is not None:
        return inverted
    draws = [posterior_error(task, log2_points, replicate) for replicate in range(replicates)]
    return _averaged(draws, task, "quasi-random posterior")


def _averaged(draws: list[float], task: SparseTask, method: str, **details: float) -> ErrorRate:
    """Mean of independent draws, at most the error of guessing, and its standard error."""
    stderr = float(np.std(draws, ddof=1) / np.sqrt(len(draws))) if len(draws) > 1 else np.nan
    return ErrorRate(min(float(np.mean(draws)), task.guess), stderr, method, details)


def _one_signal(task: SparseTask) -> ErrorRate | None:
    """Error of S = sum_l e^{theta x_l - theta^2/2} against the threshold z = L (1 - prior)/prior.

    On two rays of angle psi from the positive real axis, the Bromwich integral reads

        P(S < z) = psi/pi + (1/pi) int Im[ e^{s z} E e^{-s S} ] d log w,   s = w e^{i psi}.

    E e^{-s e^{theta x}} extends to them: with x moved to x - i psi/theta it is a damped integral
    without oscillation. psi = pi/2 suits a concentrated sum, a larger angle a heavy-tailed one;
    the angle whose result moves least when the rule is refined is kept.
    """
    best: ErrorRate | None = None
    for angle in (0.5 * np.pi, 0.6 * np.pi, 0.75 * np.pi):
        if angle / task.strength > LARGEST_SHIFT:
            continue
        with np.errstate(over="ignore", invalid="ignore"):  # at extreme priors: not finite
            coarse, fine = (_one_signal_error(task, nodes, angle) for nodes in (401, 701))
        error = max(abs(fine - coarse), 1e-12)
        if np.isfinite(error) and (best is None or error < best.numerical_error):
            best = ErrorRate(fine, error, "Fourier inversion")
        if best is not None and best.numerical_error < 1e-9:
            break
    return best if best is not None and best.numerical_error <= 1e-6 else None


def _one_signal_error(task: SparseTask, nodes: int, angle: float) -> float:
    theta, length = task.strength, task.length
    threshold = length * (1 - task.prior) / task.prior
    bottom = -np.log(length + threshold) - 30 - theta**2
    scan = np.linspace(bottom, 80.0, 300)
    size = _log_integrands(scan, theta, length, threshold, angle).real.max(axis=0)
    alive = np.flatnonzero(size > np.log(1e-13))
    v = np.linspace(bottom, scan[min(alive[-1] + 1, len(scan) - 1)], nodes)
    logs = _log_integrands(v, theta, length, threshold, angle)
    integrands = np.exp(np.minimum(logs.real, 300.0)) * np.sin(logs.imag)
    below = angle / np.pi + np.trapezoid(integrands, v, axis=1) / np.pi
    error = float(task.prior * below[1] + (1 - task.prior) * (1 - below[0]))
    in_range = -1e-6 < error < task.guess + 1e-6
    return min(max(error, 0.0), task.guess) if in_range else float("nan")


def _log_integrands(
    v: Array, theta: float, length: int, threshold: float, angle: float
) -> ComplexArray:
    """log of e^{s z} E e^{-s S} for a negative and a positive bag, at s = e^{v + i angle}."""
    noise = _log_transform(v, theta, angle)
    hit = _log_transform(v + theta**2, theta, angle)
    # cos(pi/2) is not zero in floating point, and e^v is large
    turn = complex(0.0 if angle == 0.5 * np.pi else np.cos(angle), np.sin(angle))
    carrier = np.exp(v) * turn * threshold
    return carrier + np.stack([length * noise, (length - 1) * noise + hit])


def _log_transform(v: Array, theta: float, angle: float) -> ComplexArray:
    """log E e^{-s X}, X = e^{theta x - theta^2/2}, s = e^{v + i angle}.

    The principal branch suffices: only integer multiples of it are exponentiated.
    """
    x = np.linspace(-X_RANGE, X_RANGE, X_NODES)
    density = np.exp(-0.5 * (x - 1j * angle / theta) ** 2) * (x[1] - x[0]) / np.sqrt(2 * np.pi)
    damping = np.exp(np.minimum(theta * x - 0.5 * theta**2 + v[:, None], 50.0))
    # 1 - E e^{-sX} keeps all digits where s is small
    return np.log1p(np.expm1(-damping) @ density)


def posterior_error(task: SparseTask, log2_points: int, replicate: int) -> float:
    """E min(P(+|X), P(-|X)), averaged over both classes, on quasi-random bags."""
    total = 0.0
    for signals, prior in ((task.signals, task.prior), (0, 1 - task.prior)):
        draws = bag_scores(task.length - signals, signals, log2_points, replicate)
        log_ratio = log_likelihood_ratio(draws, task)
        odds = np.log(task.prior) - np.log1p(-task.prior) + log_ratio
        total += prior * float(draws.weight @ expit(-np.abs(odds)))
    return total


def log_likelihood_ratio(draws: BagScores, task: SparseTask) -> Array:
    """log of the average over supports of prod e^{theta x_l - theta^2/2}, for every draw."""
    theta, order = task.strength, task.signals
    scores = np.concatenate([draws.signals + theta, draws.noise], axis=1)
    top = scores.max(axis=1)
    symmetric = _hidden_symmetric(draws, theta, order, top)
    weights = np.exp(theta * (scores - top[:, None]))
    for column in weights.T:
        for r in range(order, 0, -1):
            symmetric[r] = symmetric[r] + column * symmetric[r - 1]
    log_supports = gammaln(task.length + 1) - gammaln(order + 1) - gammaln(task.length - order + 1)
    scale = order * (theta * top - 0.5 * theta**2)
    return np.log(np.maximum(symmetric[order], 1e-300)) + scale - log_supports


def _hidden_symmetric(draws: BagScores, theta: float, order: int, top: Array) -> list[Array]:
    """Elementary symmetric polynomials of the hidden weights, by Newton's identities."""
    ones, zeros = np.ones(len(top)), np.zeros(len(top))
    if draws.hidden == 0:
        return [ones, *[zeros] * order]
    level, hidden = draws.level, draws.hidden

    def moment(j: int) -> Array:
        return np.exp(log_truncated_mgf(j * theta, level) - j * theta * top)

    first = moment(1)
    spread = np.sqrt(np.maximum(moment(2) - first**2, 1e-300))
    power_sums = []
    for j in range(1, order + 1):
        # power sums fluctuate with the first, by regression
        slope = (moment(j + 1) - moment(j) * first) / spread
        total = hidden * moment(j) + np.sqrt(hidden) * slope * draws.normals
        power_sums.append(np.maximum(total, 0.0))
    symmetric = [ones]
    for r in range(1, order + 1):
        signed = [(-1) ** i * symmetric[r - 1 - i] * power_sums[i] for i in range(r)]
        symmetric.append(np.maximum(sum(signed) / r, 0.0))
    return symmetric


SEARCH_LOG2_POINTS = 12
_FINE_LOG2_POINTS = 15
_NUDGE = 0.02
_HARD = 1e6
"""A sharpness at which only the largest score counts."""
SHARPNESS_GRID = np.concatenate([[0.0], np.geomspace(0.1, 30.0, 12)])


@small_matrices()
def oracle_error(
    task: SparseTask, model: str = "attention", *, log2_points: int = 14, replicates: int = 4
) -> ErrorRate:
    """Return the error of the best classifier of a family that knows the signal's direction.

    "pooled" and "vectorized": the best linear rule, in closed form. "attention": q = tau xi and
    w = xi, the sharpness tau and the threshold chosen best; any length, 2**20 and beyond.
    `numerical_error` is the standard error over independent scrambles of the quasi-random points.

    Examples
    --------
    >>> from attnlimit.sparse import SparseTask, oracle_error
    >>> round(oracle_error(SparseTask(10, 1, 5.0), "pooled").value, 4)
    0.2146
    """
    check_task(task)
    one_of(model, MODELS, "model")
    log2_points = check_points(log2_points)
    replicates = count(replicates, "replicates")
    if model != "attention":
        separation = task.strength * task.signals / np.sqrt(task.length)
        return ErrorRate(_two_gaussians(separation, task.prior), 0.0, "closed form")
    if task.strength == 0:
        return ErrorRate(task.guess, 0.0, "closed form")
    sharpness, threshold = _best_rule(task)
    scan, cut = scan_rule(task)
    errors, gains = [], []
    for replicate in range(replicates):
        bags = _bags(task, log2_points, 1 + replicate)
        errors.append(_rule(task, bags, sharpness)[0](threshold))
        gains.append(_rule(task, bags, _HARD)[0](cut) - errors[-1])
    # the largest score's error is exact: only what beats it on the same points, past noise, does
    doubt = 2 * np.std(gains) / np.sqrt(len(gains))
    if task.signals == 1 and np.mean(gains) <= doubt:
        details = {"sharpness": np.inf, "threshold": cut}
        return ErrorRate(scan, 1e-10, "hard maximum", details)
    return _averaged(errors, task, "quasi-random", sharpness=sharpness, threshold=threshold)


def _best_rule(task: SparseTask) -> tuple[float, float]:
    """Sharpness and threshold of least error, searched on points not used to evaluate them."""
    bags = _bags(task, SEARCH_LOG2_POINTS, 0)

    def best_threshold(tau: float) -> tuple[float, float]:
        error, (low, high) = _rule(task, bags, tau)
        return _minimum(error, np.linspace(low, high, 25), xatol=1e-4)

    grid = [best_threshold(tau) for tau in SHARPNESS_GRID]
    best = int(np.argmin([value for value, _ in grid]))
    if best == 0:
        return 0.0, grid[0][1]
    best_fit = minimize_scalar(
        lambda log_tau: best_threshold(float(np.exp(log_tau)))[0],
        bounds=np.log(SHARPNESS_GRID[[max(best - 1, 1), min(best + 1, len(grid) - 1)]]),
        method="bounded",
        options={"xatol": 0.02},
    )
    sharpness = float(np.exp(best_fit.x))
    return sharpness, best_threshold(sharpness)[1]


def _minimum(error: Callable[[float], float], cuts: Array, **options: float) -> tuple[float, float]:
    """Least error and its threshold, searched next to the best of `cuts`."""
    start = int(np.argmin([error(cut) for cut in cuts]))
    ends = cuts[max(start - 1, 0)], cuts[min(start + 1, len(cuts) - 1)]
    best_fit = minimize_scalar(error, bounds=ends, method="bounded", options=options)
    return float(best_fit.fun), float(best_fit.x)


def _two_gaussians(separation: float, prior: float) -> float:
    """Best error between N(0, 1) and N(separation, 1) at that prior of the second."""
    if separation == 0:
        return min(prior, 1 - prior)
    cut = separation / 2 + np.log((1 - prior) / prior) / separation
    return float(prior * ndtr(cut - separation) + (1 - prior) * ndtr(-cut))


def _bags(task: SparseTask, log2_points: int, replicate: int) -> tuple[BagScores, BagScores]:
    hit = bag_scores(task.length - task.signals, task.signals, log2_points, replicate)
    return hit, bag_scores(task.length, 0, log2_points, replicate)


def _rule(
    task: SparseTask, bags: tuple[BagScores, BagScores], sharpness: float
) -> tuple[Callable[[float], float], Array]:
    """The error against the threshold, a smooth function, at one sharpness; plausible thresholds.

    These are between the noise's middle and well inside the signal.
    """
    hit, hit_width = attention_score(bags[0], sharpness, task.strength)
    noise, noise_width = attention_score(bags[1], sharpness, 0.0)

    def error(cut: float) -> float:
        miss = bags[0].weight @ ndtr((cut - hit) / hit_width)
        alarm = bags[1].weight @ ndtr((noise - cut) / noise_width)
        return float(task.prior * miss + (1 - task.prior) * alarm)

    return error, np.array([np.quantile(noise, 0.02), np.quantile(np.append(hit, noise), 0.995)])


def attention_score(bag: BagScores, sharpness: float, shift: float) -> tuple[Array, Array]:
    """Centre and width of the Gaussian law of sum_l softmax(tau x)_l x_l, given each draw.

    One Gaussian is integrated by hand, which makes error rates smooth in the threshold. In a bag
    drawn whole it is the mean of the noise: a softmax ignores a common shift, so the score is
    that mean, N(0, 1/L), plus an independent score of the deviations. In a longer bag it is the
    part of the hidden tokens' sum that their weights do not explain.
    """
    scores = np.concatenate([bag.signals + shift, bag.noise], axis=1)
    top = scores.max(axis=1)
    weights = np.exp(sharpness * (scores - top[:, None]))
    total, first = weights.sum(axis=1), np.einsum("ij,ij->i", weights, scores)
    if bag.hidden == 0:
        tokens = scores.shape[1]
        noise_mean = (bag.signals.sum(axis=1) + bag.noise.sum(axis=1)) / tokens
        return first / total - noise_mean, np.full(len(top), 1 / np.sqrt(tokens))
    level = bag.level
    mean0, mean1, _ = _truncated_moments(sharpness, level, sharpness * top)
    square0, square1, square2 = _truncated_moments(2 * sharpness, level, 2 * sharpness * top)
    spread = np.sqrt(np.maximum(square0 - mean0**2, 0.0))
    slope = np.divide(
        square1 - mean0 * mean1, spread, out=np.zeros_like(spread), where=spread > 1e-150
    )
    rest = np.sqrt(np.maximum(square2 - mean1**2 - slope**2, 1e-300))
    root, g = np.sqrt(bag.hidden), bag.normals
    total = total + np.maximum(bag.hidden * mean0 + root * spread * g, 0.0)
    first = first + bag.hidden * mean1 + root * slope * g
    return first / total, np.maximum(root * rest / total, 1e-12)


def _truncated_moments(tilt: float, level: Array, log_scale: Array) -> tuple[Array, Array, Array]:
    """E[x^j e^{tilt x} | x < level] e^{-log_scale} for j = 0, 1, 2."""
    base = np.exp(log_truncated_mgf(tilt, level) - log_scale)
    edge = np.exp(
        tilt * level - 0.5 * level**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(level) - log_scale
    )
    first = tilt * base - edge
    return base, first, (1 + tilt**2) * base - (level + tilt) * edge


def scan_error(task: SparseTask) -> float:
    """Error of thresholding the largest score: attention with infinite sharpness, in closed form.

    An upper bound of the attention oracle at every length, and its limit as the length grows.

    Examples
    --------
    >>> from attnlimit.sparse import SparseTask, scan_error
    >>> round(scan_error(SparseTask(10, 1, 5.0)), 4)
    0.0178
    """
    return scan_rule(check_task(task))[0]


def scan_rule(task: SparseTask) -> tuple[float, float]:
    """Least error of thresholding the largest score, and the threshold."""
    least, cut = _minimum(
        lambda cut: float(error_at_cut(task, task.strength, cut)),
        np.linspace(-3, task.strength + 9, 400),
    )
    return min(least, task.guess), cut


def error_at_cut(task: SparseTask, strength: Array | float, cut: Array | float) -> Array:
    """Error of thresholding the largest score at `cut`, for signals of `strength`; broadcasts."""
    noise, signals, prior = task.length - task.signals, task.signals, task.prior
    alarm = -np.expm1(task.length * log_ndtr(cut))
    miss = np.exp(noise * log_ndtr(cut) + signals * log_ndtr(np.subtract(cut, strength)))
    return np.asarray(prior * miss + (1 - prior) * alarm)


@small_matrices()
def strength_needed(
    error: float, length: int, model: str, *, signals: int = 1, prior: float = 0.5
) -> float:
    """Return the smallest strength theta at which `model`'s error is `error`.

    `model` is "attention", "pooled", "vectorized", "bayes" or "scan" (the largest score alone).
    Linear classifiers need theta of order sqrt(L)/R, the others of order sqrt(2 log L).
    """
    error = probability(error, "error")
    one_of(model, (*MODELS, "bayes", "scan"), "model")
    prior = probability(prior, "prior")
    if error >= min(prior, 1 - prior):
        raise BadInput(
            f"error must be below min(prior, 1 - prior) = {min(prior, 1 - prior):g}, the error of "
            f"guessing; got {error:g}."
        )
    rules: dict[str, Callable[[SparseTask], SupportsFloat]] = {
        "bayes": bayes_error,
        "scan": scan_error,
        "attention": lambda task: oracle_error(task, log2_points=13, replicates=1),
    }
    rule = rules.get(model, lambda task: oracle_error(task, model))

    def gap(theta: float) -> float:
        return float(rule(SparseTask(length, signals, theta, prior))) - error

    high = 2.0
    while gap(high) > 0:
        high *= 2
    theta = float(brentq(gap, high / 2 if high > 2 else 1e-3, high, xtol=1e-4))
    if model != "attention":
        return theta
    # One Newton step on more points removes most of the noise of the search.
    slope = (gap(theta * (1 + _NUDGE)) - gap(theta * (1 - _NUDGE))) / (2 * _NUDGE * theta)
    fine = oracle_error(SparseTask(length, signals, theta, prior), log2_points=_FINE_LOG2_POINTS)
    return theta - (fine.value - error) / slope if slope < 0 else theta
