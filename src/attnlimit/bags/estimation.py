"""Estimation of a sparse task from labelled bags, with checks of its assumptions."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit
from scipy.stats import kurtosis

from attnlimit.bags.data import Bags, Stacked, check_bags
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.result import Result
from attnlimit.sparse.oracle import scan_rule
from attnlimit.sparse.task import SparseTask
from attnlimit.threads import small_matrices


@dataclass(frozen=True)
class Check:
    """An assumption of the theory, its expected value and the measured one."""

    assumption: str
    expected: float
    measured: float
    tolerance: float
    meaning: str

    @property
    def holds(self) -> bool:
        """Whether the bags are within the tolerance."""
        return abs(self.measured - self.expected) <= self.tolerance

    @property
    def shown(self) -> tuple[str, str]:
        """What was found, and what was expected, to the digits that the tolerance allows."""
        digits = max(0, 1 - int(np.floor(np.log10(self.tolerance))))
        measured, expected, off = (
            f"{value:.{digits}f}" for value in (self.measured, self.expected, self.tolerance)
        )
        return measured, f"{expected} ± {off}"


ASSUMPTIONS = {
    "noise is Gaussian (mean excess kurtosis)": "tails are not Gaussian: sharp attention meets "
    "outliers the theory does not have",
    "noise is Gaussian along the signal (excess kurtosis)": "errors of attention along this "
    "direction differ most",
    "instances of a negative bag are independent (L times variance of bag means)": "bags have "
    "their own mean: mean pooling is worse than predicted",
    "signal instances are as spread as noise (variance)": "the signal is not one fixed shift: the "
    "theory sees only its mean",
    "signals in a positive bag (standard deviation over mean)": "the number of signal instances "
    "varies from bag to bag",
    "bags have one length (shortest over longest)": "the theory uses the mean length",
    "two halves of the pilot agree on the signal (cosine)": "the pilot is too small to see the "
    "signal: treat strength as unknown",
    "error along the estimated signal on pilot bags held out": "the model is optimistic here: "
    "expect attention to err about this often instead",
}
"""What the theory assumes, and what it means where it does not hold."""


def signal_probability(instances: Array, shift: Array, fraction: float) -> Array:
    """Probability that an instance in white coordinates is the signal, given its place."""
    return np.asarray(expit(logit(fraction) + instances @ shift - 0.5 * shift @ shift))


def _count_spread(task: SparseTask, fraction: float) -> float:
    """Spread of the posterior count of signals over bags that all hold exactly R of them."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4000, task.length))
    x[:, : task.signals] += task.strength
    counts = signal_probability(x[..., None], np.array([task.strength]), fraction).sum(axis=1)
    return float(counts.std() / counts.mean())


def assumption_checks(
    white: Bags,
    halves: list[list[Array]],
    units: list[Array],
    unit: Array,
    task: SparseTask,
    agreement: float,
    fraction: float,
) -> tuple[Check, ...]:
    """Measure every assumption that one pilot can show, in white coordinates.

    `units` are the directions found on the two halves of the positive bags, `unit` on all.
    """
    negatives, positives = white.of_class(-1), Stacked.of(white.of_class(1))
    noise, lengths = np.concatenate(negatives), white.lengths
    means = np.stack([bag.mean(axis=0) * np.sqrt(len(bag)) for bag in negatives])
    weight = signal_probability(positives.instances, task.strength * unit, fraction)
    # bags far from the model may hold no instance at all that looks like its signal
    mass = max(float(weight.sum()), 1e-300)
    centred = positives.instances - (weight @ positives.instances) / mass
    counts = positives.sums(weight)
    # thresholding the largest score: the direction of one half, tested on the other
    cosine = float(np.sqrt(np.clip(agreement, 0.02, 1.0)))
    expected, threshold = scan_rule(replace(task, strength=cosine * task.strength))
    wrong: list[bool] = []
    for k, direction in enumerate(units):
        cut = (noise @ direction).mean() + threshold * (noise @ direction).std()
        wrong += [(bag @ direction).max() < cut for bag in halves[1 - k]]
        wrong += [(bag @ direction).max() > cut for bag in negatives[k::2]]
    many = len(wrong)
    error_noise = float(np.sqrt(max(expected * (1 - expected), 1 / many) / many))
    numbers = (
        (0.0, kurtosis(noise).mean(), 0.3 + 3 / np.sqrt(len(noise))),
        (0.0, kurtosis(noise @ unit), 0.5 + 3 * np.sqrt(24 / len(noise))),
        (1.0, np.mean(means**2), 0.15 + 3 * np.sqrt(2 / means.size)),
        (1.0, weight @ (centred**2).mean(axis=1) / mass, 0.3),
        (_count_spread(task, fraction), counts.std() / max(counts.mean(), 1e-9), 0.15),
        (1.0, lengths.min() / lengths.max(), 0.2),
        (1.0, agreement, 0.5),
        (expected, np.mean(wrong), 0.01 + 3 * error_noise),
    )
    return tuple(
        Check(assumption, float(expected), float(measured), float(tolerance), meaning)
        for (assumption, meaning), (expected, measured, tolerance) in zip(
            ASSUMPTIONS.items(), numbers, strict=True
        )
    )


EM_STEPS = 50
EXPLAINED = 0.99
"""Part of the noise variance that is kept; directions beyond it have outliers, not noise."""
INSTANCES_EACH = 5
"""Instances that a component of the noise is estimated from, at least."""


@dataclass(frozen=True, eq=False)
class BagEstimate(Result):
    """The sparse task estimated from a pilot set, in coordinates where the noise is white."""

    task: SparseTask
    dim: int
    signal_fraction: float
    """Part of a positive bag's instances that carry the signal, R/L."""
    alignment: float
    """Cosine of the estimated signal with the true one, by splitting the pilot in two."""
    direction: Array
    """Estimated signal, unit vector in whitened coordinates."""
    whitening: Array
    centre: Array
    checks: tuple[Check, ...]
    bags: int

    def whiten(self, bags: Bags) -> Bags:
        """Bags in coordinates where noise has identity covariance."""
        return bags.transformed(self.whitening, self.centre)

    def to_frame(self) -> pd.DataFrame:
        """One row for each check."""
        return pd.DataFrame([{**asdict(check), "holds": check.holds} for check in self.checks])

    def __str__(self) -> str:
        t = self.task
        lines = [
            f"{self.bags} bags, whitened to d = {self.dim}: L = {t.length}, R = {t.signals} "
            f"(fraction {self.signal_fraction:.3f}), strength {t.strength:.2f}, "
            f"prior {t.prior:.2f}",
        ]
        lines += [
            f"  {'ok  ' if c.holds else 'FAIL'} {c.assumption}: {c.shown[0]}, expected {c.shown[1]}"
            + ("" if c.holds else f"; {c.meaning}")
            for c in self.checks
        ]
        return "\n".join(lines)


@small_matrices()
def estimate(bags: Bags, seed: int = 0) -> BagEstimate:
    """Estimate L, R, theta, the prior and the noise from labelled bags, and check the model.

    The negative bags' instances give the noise, which is whitened by principal components: those
    that explain 99 % of its variance, with five instances for each at least, so that a small pilot
    sees fewer of them. The signal is a second Gaussian component of the positive bags' instances,
    with the same covariance, fitted by expectation-maximisation on two halves of the pilot: what
    one half finds is measured on the other, so that noise is not mistaken for signal.
    """
    check_bags(bags)
    negative = np.concatenate(bags.of_class(-1))
    if len(negative) < INSTANCES_EACH:
        raise BadInput(
            f"the negative bags hold {len(negative)} instances, too few to see the noise; label "
            f"bags with at least {INSTANCES_EACH}."
        )
    centre, whitening = _whitening(negative)
    white = bags.transformed(whitening, centre)
    dim = whitening.shape[1]
    rng = np.random.default_rng(seed)
    positives = white.of_class(1)
    if len(positives) < 4:
        raise BadInput(f"a pilot needs at least 4 positive bags, got {len(positives)}.")
    order = rng.permutation(len(positives))
    halves = [[positives[i] for i in order[k::2]] for k in (0, 1)]
    shifts = [_signal(np.concatenate(half)) for half in halves]
    norms = [np.linalg.norm(shift) for shift in shifts]
    agreement = float(shifts[0] @ shifts[1] / (norms[0] * norms[1]))
    units = [shift / norm for shift, norm in zip(shifts, norms, strict=True)]
    half_alignment = float(np.sqrt(np.clip(agreement, 0.02, 1.0)))
    fits = [_shift_on(units[k], halves[1 - k], white.of_class(-1)) for k in (0, 1)]
    fraction, shift = np.mean(fits, axis=0).tolist()
    # whitening by m instances lengthens every shift: E of an inverse Wishart matrix
    whitened = float(np.sqrt(1 - (dim + 1) / len(negative)))
    strength = whitened * shift / half_alignment
    length = round(float(np.mean(bags.lengths)))
    signals = int(np.clip(round(fraction * length), 1, length))
    task = SparseTask(length, signals, strength, float(np.mean(bags.signs > 0)))
    full = _signal(np.concatenate(positives))
    direction = full / np.linalg.norm(full)
    # doubling the data halves 1/cos^2 - 1
    alignment = 1 / np.sqrt(1 + (1 / half_alignment**2 - 1) / 2)
    checks = assumption_checks(white, halves, units, direction, task, agreement, fraction)
    noise = whitening, centre
    return BagEstimate(task, dim, fraction, float(alignment), direction, *noise, checks, len(bags))


def _whitening(instances: Array) -> tuple[Array, Array]:
    """Centre of the noise, and its principal components over their standard deviations."""
    (size, dim), centre = instances.shape, instances.mean(axis=0)
    centred = instances - centre
    if size < dim:
        _, widths, directions = np.linalg.svd(centred, full_matrices=False)
        values, vectors = widths**2 / (size - 1), directions.T
    else:
        values, vectors = np.linalg.eigh(centred.T @ centred / (size - 1))
        values, vectors = values[::-1], vectors[:, ::-1]
    if values[0] <= 0:
        raise BadInput(
            "the negative bags' instances are all alike, so there is no noise to whiten; give "
            "others."
        )
    wanted = int(np.searchsorted(np.cumsum(values) / values.sum(), EXPLAINED) + 1)
    keep = min(wanted, size // INSTANCES_EACH)
    return centre, vectors[:, :keep] / np.sqrt(values[:keep])


def _signal(instances: Array) -> Array:
    """The shift of the rare component among standard normal instances, by EM from its mean."""
    dim = instances.shape[1]
    mean = instances.mean(axis=0)
    unit = mean / np.linalg.norm(mean)
    # start from the instances furthest along the mean: the component is rare
    projection = instances @ unit
    shift = instances[projection >= np.quantile(projection, 0.95)].mean(axis=0)
    fraction = 0.1
    for _ in range(EM_STEPS):
        # the norm of a mean of m noisy vectors is inflated by d/m
        weight = signal_probability(instances, shift, fraction)
        total = weight.sum()
        fraction = float(np.clip(total / len(instances), 1 / len(instances), 0.999))
        shift = weight @ instances / max(total, 1e-9)
        size = np.linalg.norm(shift)
        inflated = dim * float(np.sum(weight**2)) / max(total, 1e-9) ** 2
        shift *= np.sqrt(max(size**2 - inflated, 0.25 * size**2)) / max(size, 1e-12)
    return shift


def _shift_on(unit: Array, positives: list[Array], negatives: list[Array]) -> tuple[float, float]:
    """Fraction and shift of the signal along a direction found elsewhere: 1-D likelihood."""
    noise = np.concatenate(negatives) @ unit
    centre, width = float(noise.mean()), float(noise.std())
    x = (np.concatenate(positives) @ unit - centre) / width

    def negative_log_likelihood(p: Array) -> float:
        noise, signal = log_expit(-p[0]), log_expit(p[0])
        return -float(np.logaddexp(noise, signal + p[1] * x - 0.5 * p[1] ** 2).sum())

    fits = [
        minimize(negative_log_likelihood, np.array([-2.0, start]), method="Nelder-Mead")
        for start in (1.0, 3.0, 6.0)
    ]
    best = min(fits, key=lambda fit: fit.fun)
    return float(expit(best.x[0])), abs(float(best.x[1])) * width
