"""Do these bags fit the sparse-token model? One check for each assumption, with numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from attnlimit.checks import Array
from attnlimit.sparse.bags.bags import Bags
from attnlimit.sparse.law.oracle import scan_rule
from attnlimit.sparse.task import SparseTask


@dataclass(frozen=True)
class Check:
    """One assumption of the theory, what it asks for and what the bags show."""

    assumption: str
    expected: float
    found: float
    tolerance: float
    meaning: str

    @property
    def holds(self) -> bool:
        """Whether the bags are within the tolerance."""
        return abs(self.found - self.expected) <= self.tolerance

    @property
    def shown(self) -> tuple[str, str]:
        """What was found, and what was expected, to the digits that the tolerance allows."""
        digits = max(0, 1 - int(np.floor(np.log10(self.tolerance))))
        found, expected, off = (
            f"{value:.{digits}f}" for value in (self.found, self.expected, self.tolerance)
        )
        return found, f"{expected} ± {off}"


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


def _excess_kurtosis(x: Array) -> float:
    return float(np.mean(((x - x.mean(axis=0)) / x.std(axis=0)) ** 4)) - 3


def held_out_check(
    white: Bags, halves: list[list[Array]], units: list[Array], task: SparseTask, cosine: float
) -> Check:
    """Compare the error of thresholding the largest score with what the model says it is.

    The direction comes from one half of the pilot, the threshold from the model, and the error
    from the other half.
    """
    seen = SparseTask(task.length, task.signals, cosine * task.strength, task.prior)
    expected, threshold = scan_rule(seen)
    negatives = white.of_class(-1)
    wrong, total = 0, 0
    for k, unit in enumerate(units):
        noise = np.concatenate(negatives) @ unit
        cut = float(noise.mean()) + threshold * float(noise.std())
        wrong += sum(bool((bag @ unit).max() < cut) for bag in halves[1 - k])
        wrong += sum(bool((bag @ unit).max() > cut) for bag in negatives[k::2])
        total += len(halves[1 - k]) + len(negatives[k::2])
    return Check(
        "error along the estimated signal on pilot bags held out",
        expected,
        wrong / total,
        0.01 + 3 * float(np.sqrt(max(expected * (1 - expected), 1 / total) / total)),
        "the model is optimistic here: expect attention to err about this often instead",
    )


def assumption_checks(
    bags: Bags, white: Bags, unit: Array, task: SparseTask, agreement: float, fraction: float
) -> tuple[Check, ...]:
    """Measure every assumption that one pilot can show."""
    negatives = white.of_class(-1)
    noise = np.concatenate(negatives)
    along = noise @ unit
    lengths = bags.lengths
    means = np.stack([bag.mean(axis=0) for bag in negatives])
    sizes = np.array([len(bag) for bag in negatives])
    clustering = float(np.mean(means**2 * sizes[:, None]))
    positives = white.of_class(1)
    instances = np.concatenate(positives)
    weight = signal_probability(instances, task.strength * unit, fraction)
    # bags far from the model may hold no instance at all that looks like its signal
    found = max(float(weight.sum()), 1e-300)
    centred = instances - (weight @ instances) / found
    spread = float(weight @ (centred**2).mean(axis=1) / found)
    borders = np.cumsum([len(bag) for bag in positives])[:-1]
    counts = np.array([part.sum() for part in np.split(weight, borders)])
    count_spread = float(counts.std() / max(counts.mean(), 1e-9))
    usual_spread = _count_spread(task, fraction)
    return (
        Check(
            "noise is Gaussian (mean excess kurtosis)",
            0.0,
            _excess_kurtosis(noise),
            0.3 + 3 / np.sqrt(len(noise)),
            "tails are not Gaussian: sharp attention meets outliers the theory does not have",
        ),
        Check(
            "noise is Gaussian along the signal (excess kurtosis)",
            0.0,
            _excess_kurtosis(along),
            0.5 + 3 * np.sqrt(24 / len(along)),
            "attention looks along this direction: its errors will differ most",
        ),
        Check(
            "instances of a negative bag are independent (L times variance of bag means)",
            1.0,
            clustering,
            0.15 + 3 * np.sqrt(2 / means.size),
            "bags have their own mean: mean pooling is worse than predicted",
        ),
        Check(
            "signal instances are as spread as noise (variance)",
            1.0,
            spread,
            0.3,
            "the signal is not one fixed shift: the theory sees only its mean",
        ),
        Check(
            "signals in a positive bag (standard deviation over mean)",
            usual_spread,
            count_spread,
            0.15,
            "the number of signal instances varies from bag to bag",
        ),
        Check(
            "bags have one length (shortest over longest)",
            1.0,
            float(lengths.min() / lengths.max()),
            0.2,
            "the theory uses the mean length",
        ),
        Check(
            "two halves of the pilot agree on the signal (cosine)",
            1.0,
            agreement,
            0.5,
            "the pilot is too small to see the signal: treat strength as unknown",
        ),
    )
