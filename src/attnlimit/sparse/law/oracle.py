"""What could each classifier do if it knew the signal: oracle errors, and the strength needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import SupportsFloat

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr, ndtr

from attnlimit.checks import Array, one_of, probability
from attnlimit.errors import BadInput
from attnlimit.sparse.error_rate import ErrorRate
from attnlimit.sparse.law.bag_scores import BagScores, bag_scores, log_truncated_mgf
from attnlimit.sparse.law.bayes import bayes_error
from attnlimit.sparse.task import MODELS, SparseTask

SEARCH_LOG2_POINTS = 12
_FINE_LOG2_POINTS = 15
_NUDGE = 0.02
_HARD = 1e6
"""A sharpness at which only the largest score counts."""
SHARPNESS_GRID = np.concatenate([[0.0], np.geomspace(0.1, 30.0, 12)])


def oracle_error(
    task: SparseTask, model: str = "attention", *, log2_points: int = 14, replicates: int = 4
) -> ErrorRate:
    """Return the error of the best classifier of a family that knows the signal's direction.

    "pooled" and "vectorized": the best linear rule, in closed form. "attention": q = tau xi and
    w = xi, the sharpness tau and the threshold chosen best; any length, 2**20 and beyond.
    `numerical_error` is the standard error over independent scrambles of the quasi-random points.

    Examples
    --------
    >>> round(oracle_error(SparseTask(10, 1, 5.0), "pooled").value, 4)
    0.2146
    """
    one_of(model, MODELS, "model")
    if model != "attention":
        if model == "vectorized" and not task.uniform_positions:
            raise BadInput("the vectorized oracle needs uniform positions; drop the position law.")
        separation = task.strength * task.signals / np.sqrt(task.length)
        return ErrorRate(_two_gaussians(separation, task.prior), 0.0, "closed form")
    if task.strength == 0:
        return ErrorRate(task.guess, 0.0, "closed form")
    sharpness, threshold = _best_rule(task)
    scan, cut = scan_rule(task)
    errors, gains = [], []
    for replicate in range(max(1, int(replicates))):
        bags = _bags(task, log2_points, 1 + replicate)
        errors.append(_rule(task, bags, sharpness)[0](threshold))
        gains.append(_rule(task, bags, _HARD)[0](cut) - errors[-1])
    # the largest score's error is exact: only what beats it on the same points, past noise, does
    doubt = 2 * np.std(gains) / np.sqrt(len(gains))
    if task.signals == 1 and np.mean(gains) <= doubt:
        details = {"sharpness": np.inf, "threshold": cut}
        return ErrorRate(scan, 1e-10, "hard maximum", details)
    return ErrorRate.of_draws(
        errors, task.guess, "quasi-random", sharpness=sharpness, threshold=threshold
    )


def _best_rule(task: SparseTask) -> tuple[float, float]:
    """Sharpness and threshold of least error, found on points not used to evaluate them."""
    bags = _bags(task, SEARCH_LOG2_POINTS, 0)

    def best_threshold(tau: float) -> tuple[float, float]:
        error, (low, high) = _rule(task, bags, tau)
        return _minimum(error, np.linspace(low, high, 25), xatol=1e-4)

    grid = [best_threshold(tau) for tau in SHARPNESS_GRID]
    best = int(np.argmin([value for value, _ in grid]))
    if best == 0:
        return 0.0, grid[0][1]
    found = minimize_scalar(
        lambda log_tau: best_threshold(float(np.exp(log_tau)))[0],
        bounds=np.log(SHARPNESS_GRID[[max(best - 1, 1), min(best + 1, len(grid) - 1)]]),
        method="bounded",
        options={"xatol": 0.02},
    )
    sharpness = float(np.exp(found.x))
    return sharpness, best_threshold(sharpness)[1]


def _minimum(error: Callable[[float], float], cuts: Array, **options: float) -> tuple[float, float]:
    """Least error and its threshold, searched next to the best of `cuts`."""
    start = int(np.argmin([error(cut) for cut in cuts]))
    ends = cuts[max(start - 1, 0)], cuts[min(start + 1, len(cuts) - 1)]
    found = minimize_scalar(error, bounds=ends, method="bounded", options=options)
    return float(found.fun), float(found.x)


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
    seen = np.concatenate([bag.signals + shift, bag.noise], axis=1)
    top = seen.max(axis=1)
    weights = np.exp(sharpness * (seen - top[:, None]))
    total, first = weights.sum(axis=1), np.einsum("ij,ij->i", weights, seen)
    if bag.hidden == 0:
        tokens = seen.shape[1]
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

    An upper bound of the attention oracle at every length, and its law as the length grows.
    """
    return scan_rule(task)[0]


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


def strength_needed(
    error: float, length: int, model: str, *, signals: int = 1, prior: float = 0.5
) -> float:
    """Return the smallest strength theta at which `model`'s error is `error`.

    `model` is "attention", "pooled", "vectorized", "bayes" or "scan" (the largest score alone).
    Linear classifiers need theta of order sqrt(L)/R, the others of order sqrt(2 log L).
    """
    error = probability(error, "error")
    one_of(model, (*MODELS, "bayes", "scan"), "model")
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
    found = float(brentq(gap, high / 2 if high > 2 else 1e-3, high, xtol=1e-4))
    if model != "attention":
        return found
    # One step of Newton's on many more points: their noise is what is left of the search.
    slope = (gap(found * (1 + _NUDGE)) - gap(found * (1 - _NUDGE))) / (2 * _NUDGE * found)
    fine = oracle_error(SparseTask(length, signals, found, prior), log2_points=_FINE_LOG2_POINTS)
    return found - (fine.value - error) / slope if slope < 0 else found
