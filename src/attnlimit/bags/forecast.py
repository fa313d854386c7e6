"""Learning curves of poolings: a law of two numbers, fitted to a pilot with its uncertainty.

In d dimensions, a direction learned from n bags of prior pi has the cosine s with the true one,
1/s^2 = 1 + d / (n pi (1-pi) theta^2), and of a signal of strength theta it sees s theta. The error
is E(s theta), where E is that of the rule that knows the direction. Attention learns three
directions in a row (first step, query, readout), and sees s^3 theta. An equality for linear
readouts at their best ridge if classes are as frequent, a first-order summary for attention
(docs/theory/sparse-bags.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.stats import chi2, norm

from attnlimit.checks import Array, one_of
from attnlimit.constants import (
    DIM_SPREAD,
    ESTIMATE_DIM_SPREAD,
    ESTIMATE_PROBABILITY,
    FLOORS,
    NO_SIGNAL,
    SHAPE_NOISE,
    TRAINING_NOISE,
    USUAL_DIM,
)
from attnlimit.sparse.oracle import error_at_cut, oracle_error
from attnlimit.sparse.task import SparseTask

STAGES = {"pooled": 1, "attention": 3}
"""Directions learned one after the other."""
STRENGTHS = np.linspace(0.0, 14.0, 113)
CUTS = np.linspace(-3.0, 23.0, 1041)


@dataclass(frozen=True, eq=False)
class LearningLaw:
    """Error against strength, scale and number of bags, for one kind of bags and classifier."""

    task: SparseTask
    """Mean length, signals and prior; its strength does not matter."""
    model: str
    known: Array
    """arcsin sqrt of the error of the rule that knows the direction, at `STRENGTHS`."""

    def __call__(self, strength: Array | float, dim: Array | float, bags: Array | float) -> Array:
        """Error after `bags` labelled bags in `dim` dimensions; everything broadcasts."""
        return np.asarray(np.sin(self.angle(strength, dim, bags)) ** 2)

    def angle(self, strength: Array | float, dim: Array | float, bags: Array | float) -> Array:
        """arcsin sqrt of the error, in which a measured error has the same noise everywhere."""
        theta, prior = np.maximum(strength, 1e-9), self.task.prior
        noise = dim / (np.asarray(bags) * prior * (1 - prior) * theta**2)
        cosine = (1 + noise) ** (-0.5 * STAGES[self.model])
        return np.asarray(np.interp(theta * cosine, STRENGTHS, self.known))

    def strength(self, angle: Array) -> Array:
        """Strength at which infinitely many bags leave this arcsin sqrt of an error."""
        order = np.arange(len(STRENGTHS))[::-1]
        return np.asarray(np.interp(angle, self.known[order], STRENGTHS[order]))


@lru_cache(maxsize=32)
def learning_law(
    model: str, length: int | tuple[int, ...], signals: int, prior: float
) -> LearningLaw:
    """Return the law of linear readouts of fixed features ("pooled"), or of "attention".

    For the first, strength is the distance of the class means in units of the noise, whatever
    length and signals are. For attention `length` may be those of many bags: a bag of mean length
    has so many `signals`, the others as many in proportion, but one where signals is one.
    """
    one_of(model, tuple(STAGES), "model")
    if model == "pooled":
        task = SparseTask(1, 1, 1.0, prior)
        tasks = (replace(task, strength=float(strength)) for strength in STRENGTHS)
        errors = np.array([oracle_error(task, "pooled").value for task in tasks])
    else:
        lengths, bags = np.unique(length, return_counts=True)
        mean = float(lengths @ bags) / bags.sum()
        task = SparseTask(max(signals, round(mean)), signals, 1.0, prior)
        wrong = np.zeros((len(STRENGTHS), len(CUTS)))
        for size, share in zip(lengths.tolist(), bags / bags.sum(), strict=True):
            hits = 1 if signals == 1 else int(np.clip(round(signals * size / mean), 1, size))
            kind = replace(task, length=size, signals=hits)
            wrong += share * error_at_cut(kind, STRENGTHS[:, None], CUTS)
        errors = wrong.min(axis=1)
    falling = np.minimum.accumulate(np.minimum(errors, task.guess))
    return LearningLaw(task, model, np.arcsin(np.sqrt(falling)))


INTERVAL = (0.05, 0.5, 0.95)
"""Probabilities of an interval's ends, and its middle."""
LEAST_ANGLE = 0.01
"""arcsin sqrt of the smallest error that endless bags may leave: 1e-4."""
GRID = 32
DRAWS = 4000


@dataclass(frozen=True)
class Prior:
    """The law of an estimated task, before any pooling is trained."""

    strength: float
    dim: float
    strength_spread: float
    """Standard deviation of the logarithm of the strength."""
    dim_spread: float = ESTIMATE_DIM_SPREAD
    probability: float = ESTIMATE_PROBABILITY

    def density(self, strength: Array, dim: Array) -> Array:
        """Weights of laws of a grid that is spaced evenly in the logarithm of `dim`."""
        from_strength = np.log(np.maximum(strength, 1e-9) / self.strength) / self.strength_spread
        from_dim = np.log(dim / self.dim) / self.dim_spread
        return np.asarray(np.exp(-0.5 * (from_strength**2 + from_dim**2)))


@dataclass(frozen=True, eq=False)
class Forecast:
    """Laws that are still possible after the pilot, each with its probability."""

    laws: tuple[LearningLaw, ...]
    which: Array
    strength: Array
    dim: Array
    floor: Array
    weight: Array
    largest: int
    """Bags that the pilot's largest training sets held."""
    surprise: float
    """Probability that noise alone puts the pilot this far from the nearest law."""

    def angles(self, bags: float) -> Array:
        """Return arcsin sqrt of the error of every law at this number of bags."""
        angles = np.empty(len(self.which))
        for number, law in enumerate(self.laws):
            mine = self.which == number
            angles[mine] = _angle(law, self.strength[mine], self.dim[mine], self.floor[mine], bags)
        return angles

    def error(self, bags: float, probability: Sequence[float] | Array = INTERVAL) -> Array:
        """Quantiles of the error at this number of bags."""
        rng = np.random.default_rng(0)
        drawn = rng.choice(self.angles(bags), DRAWS, p=self.weight)
        beyond = SHAPE_NOISE * np.log(bags / self.largest)
        angle = drawn + np.hypot(TRAINING_NOISE, beyond) * norm.rvs(size=DRAWS, random_state=rng)
        return np.asarray(np.sin(np.quantile(np.clip(angle, 0.0, np.pi / 2), probability)) ** 2)

    def interval(self, quantity: str) -> Array:
        """Quantiles of the effective "strength", "dim" or "floor"."""
        values = getattr(self, quantity)
        order = np.argsort(values)
        return np.asarray(np.interp(INTERVAL, np.cumsum(self.weight[order]), values[order]))


def _angle(
    law: LearningLaw,
    strength: Array,
    dim: Array,
    floor: Array,
    bags: Array | float,
) -> Array:
    """Return arcsin sqrt of the error, part of which stays whatever is labelled.

    Classes that are drawn by chance, as often as each occurs, err more than the likelier class does
    if it is always named: a trained pooling may be worse than guessing.
    """
    chance = 2 * law.task.prior * (1 - law.task.prior)
    error = floor * chance + (1 - floor) * law(strength, dim, bags)
    return np.asarray(np.arcsin(np.sqrt(error)))


def forecast(
    laws: Sequence[LearningLaw],
    sizes: Array,
    angles: Array,
    *,
    bags: int,
    correlation: Array,
    overlap: float = 0.0,
    dim: int,
    prior: Prior | None = None,
) -> Forecast:
    """Weigh laws, strengths, dimensions and floors by how well they explain a pilot.

    Measured are the `angles`, arcsin sqrt of the error of `bags` test bags after training on some
    `sizes`, with this correlation between sizes; what all of them share because they train on the
    same bags has `overlap` times the variance of test bags. Before the pilot every error at its
    largest size is as likely as any other (in arcsin sqrt), and the directions to be told apart are
    as many as the features, `dim`, or fewer. A `prior` on the first law takes its share of the
    probability.
    """
    noise = (correlation + overlap) / (4 * bags) + TRAINING_NOISE**2 * np.eye(len(sizes))
    precision = np.linalg.inv(noise)
    middle = max(USUAL_DIM * dim, 1.0)
    dims = middle * np.exp(DIM_SPREAD * np.linspace(-2, 2, GRID))
    parts = []
    for number, law in enumerate(laws):
        most = float(law.known[0])
        left = np.linspace(most, min(LEAST_ANGLE, most / 2), 2 * GRID)
        grid = np.meshgrid(law.strength(left), dims, FLOORS, indexing="ij")
        strength, spread, floor = (values.ravel() for values in grid)
        column = strength[:, None], spread[:, None], floor[:, None]
        gap = _angle(law, *column, sizes) - angles
        distance = np.einsum("ki,ij,kj->k", gap, precision, gap)
        # uniform in the error at the largest size: the pilot sets the level
        level = _angle(law, strength, spread, floor, float(sizes.max()))
        step = -np.gradient(level.reshape(grid[0].shape), axis=0).ravel()
        density = step * norm.pdf(np.log(spread / middle) / DIM_SPREAD)
        density *= (1 - NO_SIGNAL) / density.sum()
        nothing = strength == 0
        density = (density + NO_SIGNAL * nothing / nothing.sum()) / len(laws)
        if prior is not None:
            density *= 1 - prior.probability
            if number == 0:
                near = prior.density(strength, spread) * (floor == 0)
                density += prior.probability * near / max(near.sum(), 1e-300)
        parts.append((np.full(len(strength), number), strength, spread, floor, distance, density))
    which, strength, spread, floor, distance, density = map(
        np.concatenate, zip(*parts, strict=True)
    )
    weight = density * np.exp(-0.5 * (distance - distance.min()))
    surprise = float(chi2.sf(distance.min(), max(1, len(sizes) - 2)))
    return Forecast(
        laws=tuple(laws),
        which=which,
        strength=strength,
        dim=spread,
        floor=floor,
        weight=weight / weight.sum(),
        largest=int(sizes.max()),
        surprise=surprise,
    )
