"""What will the error be with more bags? A learning law fitted to a pilot, with what is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2, norm

from attnlimit.checks import Array
from attnlimit.sparse.law.learning import LearningLaw

INTERVAL = (0.05, 0.5, 0.95)
"""Probabilities of an interval's ends, and its middle."""
LEAST_ANGLE = 0.01
"""arcsin sqrt of the smallest error that endless bags may leave: 1e-4."""
GRID = 32
USUAL_DIM, DIM_SPREAD = 0.5, 1.5
"""Directions to be told apart before the pilot: median as a part of the features, and the standard
deviation of the logarithm; all of them if features were independent."""
NO_SIGNAL = 0.1
"""Probability, before the pilot, that there is nothing to learn."""
FLOORS = (0.0, 0.1, 0.2, 0.4)
"""Part of the bags whose class is drawn by chance, whatever is labelled."""
TRAINING_NOISE, SHAPE_NOISE = 0.03, 0.03
"""Deviation from the law in arcsin sqrt of the error: always, and for each e-fold of bags."""
DRAWS = 4000


@dataclass(frozen=True)
class Belief:
    """A law that the pilot's instances point to, before any pooling is trained."""

    strength: float
    dim: float
    strength_spread: float
    """Standard deviation of the logarithm of the strength."""
    dim_spread: float = 0.1
    probability: float = 0.9

    def density(self, strength: Array, dim: Array) -> Array:
        """Probability of each law of a grid that is spaced evenly in the logarithm of `dim`."""
        from_strength = np.log(np.maximum(strength, 1e-9) / self.strength) / self.strength_spread
        from_dim = np.log(dim / self.dim) / self.dim_spread
        near = np.exp(-0.5 * (from_strength**2 + from_dim**2))
        return np.asarray(near / max(near.sum(), 1e-300))


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
        found = np.empty(len(self.which))
        for number, law in enumerate(self.laws):
            mine = self.which == number
            found[mine] = _angle(law, self.strength[mine], self.dim[mine], self.floor[mine], bags)
        return found

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
    belief: Belief | None = None,
) -> Forecast:
    """Weigh laws, strengths, dimensions and floors by how well they explain a pilot.

    Measured are the `angles`, arcsin sqrt of the error of `bags` test bags after training on some
    `sizes`, with this correlation between sizes; what all of them share because they train on the
    same bags has `overlap` times the variance of test bags. Before the pilot every error at its
    largest size is as likely as any other (in arcsin sqrt), and the directions to be told apart are
    as many as the features, `dim`, or fewer. A `belief` about the first law takes its share of the
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
        # the level is the pilot's to say: all errors at its largest size are as likely before it
        level = _angle(law, strength, spread, floor, float(sizes.max()))
        step = -np.gradient(level.reshape(grid[0].shape), axis=0).ravel()
        prior = step * norm.pdf(np.log(spread / middle) / DIM_SPREAD)
        prior *= (1 - NO_SIGNAL) / prior.sum()
        nothing = strength == 0
        prior = (prior + NO_SIGNAL * nothing / nothing.sum()) / len(laws)
        if belief is not None:
            prior *= 1 - belief.probability
            if number == 0:
                prior += belief.probability * belief.density(strength, spread) * (floor == 0)
        parts.append((np.full(len(strength), number), strength, spread, floor, distance, prior))
    which, strength, spread, floor, distance, prior = map(np.concatenate, zip(*parts, strict=True))
    weight = prior * np.exp(-0.5 * (distance - distance.min()))
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
