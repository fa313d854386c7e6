"""How does the error fall as bags are labelled? A law of two numbers, to be fitted to a pilot.

In d dimensions, a direction learned from n bags of prior pi has the cosine s with the true one,
1/s^2 = 1 + d / (n pi (1-pi) theta^2), and of a signal of strength theta it sees s theta. The error
is E(s theta), where E is that of the rule that knows the direction. Attention learns three
directions in a row (first step, query, readout), and sees s^3 theta. Exact for linear readouts at
their best ridge if classes are as frequent, a summary of the exact asymptotics for attention
(docs/theory/sparse-bags.md, section 2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from attnlimit.checks import Array, one_of
from attnlimit.sparse.law.oracle import error_at_cut, oracle_error
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
        """Strength at which endless bags leave this arcsin sqrt of an error."""
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
        errors = np.array([oracle_error(one, "pooled").value for one in tasks])
    else:
        lengths, bags = np.unique(length, return_counts=True)
        mean = float(lengths @ bags) / bags.sum()
        task = SparseTask(max(signals, round(mean)), signals, 1.0, prior)
        wrong = np.zeros((len(STRENGTHS), len(CUTS)))
        for one, share in zip(lengths.tolist(), bags / bags.sum(), strict=True):
            many = 1 if signals == 1 else int(np.clip(round(signals * one / mean), 1, one))
            kind = replace(task, length=one, signals=many)
            wrong += share * error_at_cut(kind, STRENGTHS[:, None], CUTS)
        errors = wrong.min(axis=1)
    falling = np.minimum.accumulate(np.minimum(errors, task.guess))
    return LearningLaw(task, model, np.arcsin(np.sqrt(falling)))
