"""The smallest error any classifier can have on a sparse task that it knows: the Bayes error.

With x_l = <X_l, xi> the likelihood ratio is the average over supports of prod e^{theta x_l -
theta^2/2}: an elementary symmetric polynomial (docs/theory/sparse-oracle.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln

from attnlimit.checks import Array
from attnlimit.sparse.error_rate import ErrorRate
from attnlimit.sparse.law.bag_scores import BagScores, bag_scores, log_truncated_mgf
from attnlimit.sparse.task import SparseTask

X_NODES = 401
X_RANGE = 12.0
LARGEST_SHIFT = 3.5
"""A contour moved further than this into the complex plane loses more than three digits."""
ComplexArray = NDArray[np.complex128]


def bayes_error(task: SparseTask, *, log2_points: int = 14, replicates: int = 4) -> ErrorRate:
    """Return the Bayes error: xi, theta, R and the prior known, the support not.

    One signal: the distribution of a sum of L lognormals, by Fourier inversion on a rotated
    contour, at any L, to 1e-6 or better. More signals: quasi-random draws of the posterior's
    smaller probability, `replicates` independent scrambles giving the numerical error.

    Examples
    --------
    >>> round(bayes_error(SparseTask(10, 1, 5.0)).value, 4)
    0.0178
    """
    if task.strength == 0:
        return ErrorRate(task.guess, 0.0, "closed form")
    if task.signals == 1:
        inverted = _one_signal(task)
        if inverted is not None:
            return inverted
    draws = [posterior_error(task, log2_points, replicate) for replicate in range(replicates)]
    return ErrorRate.of_draws(draws, task.guess, "quasi-random posterior")


def _one_signal(task: SparseTask) -> ErrorRate | None:
    """Error of S = sum_l e^{theta x_l - theta^2/2} against the threshold z = L (1 - prior)/prior.

    On two rays of angle psi from the positive real axis, the Bromwich integral reads

        P(S < z) = psi/pi + (1/pi) int Im[ e^{s z} E e^{-s S} ] d log w,   s = w e^{i psi}.

    E e^{-s e^{theta x}} extends to them: with x moved to x - i psi/theta it is a damped integral
    without oscillation. psi = pi/2 suits a concentrated sum, a larger angle a heavy-tailed one;
    the one that moves least when the rule is refined is kept.
    """
    best: ErrorRate | None = None
    for angle in (0.5 * np.pi, 0.6 * np.pi, 0.75 * np.pi):
        if angle / task.strength > LARGEST_SHIFT:
            continue
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
    seen = np.concatenate([draws.signals + theta, draws.noise], axis=1)
    top = seen.max(axis=1)
    symmetric = _hidden_symmetric(draws, theta, order, top)
    weights = np.exp(theta * (seen - top[:, None]))
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
        # every power sum fluctuates with the first one, by regression
        slope = (moment(j + 1) - moment(j) * first) / spread
        total = hidden * moment(j) + np.sqrt(hidden) * slope * draws.normals
        power_sums.append(np.maximum(total, 0.0))
    symmetric = [ones]
    for r in range(1, order + 1):
        signed = [(-1) ** i * symmetric[r - 1 - i] * power_sums[i] for i in range(r)]
        symmetric.append(np.maximum(sum(signed) / r, 0.0))
    return symmetric
