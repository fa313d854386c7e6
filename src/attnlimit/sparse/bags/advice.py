"""Which pooling, can the pilot tell, and if not, how many more bags would?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from attnlimit.checks import Array
from attnlimit.sparse.bags.forecast import Forecast
from attnlimit.sparse.bags.pilot import PilotErrors

SIMPLEST = "mean pooling"
SURE = 0.9
"""Probability of being better from which on it is settled."""
MATTERS = 0.01
"""A difference of errors that is worth labelling for, and another pooling than the simplest."""
DRAWS = 4000


@dataclass(frozen=True)
class Advice:
    """The pooling to use with so many labelled bags, and how sure that is."""

    bags: int
    pooling: str
    rival: str
    """The best of the others, or the simplest if it is not the one to use."""
    better: float
    """Probability that the pooling errs less than its rival."""
    signal: float
    """Probability that it errs less than guessing."""
    tell: int | None
    """Bags in the pilot that would tell the two apart; None if no number worth naming would."""

    @property
    def settled(self) -> bool:
        """Whether the pilot can tell."""
        return self.better >= SURE and self.signal >= SURE


def advise(
    pilot: PilotErrors, forecasts: Mapping[str, Forecast], bags: int, guess: float
) -> Advice:
    """Compare forecasts at a number of bags; luck with the pilot's bags is shared by all."""
    names = list(forecasts)
    mixed = np.random.default_rng(0).multivariate_normal(
        np.zeros(len(names)), pilot.between(), DRAWS, method="cholesky"
    )
    drawn = {
        name: forecast.error(bags, norm.cdf(mixed[:, place]))
        for place, (name, forecast) in enumerate(forecasts.items())
    }

    def beats(one: str, other: str) -> float:
        return float(np.mean(drawn[one] < drawn[other]))

    expected = {name: float(np.mean(errors)) for name, errors in drawn.items()}
    order = sorted(names, key=expected.__getitem__)
    # the pilot outranks the theory: what it found worse than the simplest is not recommended
    seen = dict(zip(pilot.poolings, pilot.error[:, -1], strict=True))
    best = next(name for name in order if seen[name] <= seen[SIMPLEST])
    if expected[SIMPLEST] - expected[best] < max(MATTERS, pilot.resolution):
        best = SIMPLEST
    rival = next(name for name in order if name != best) if best == SIMPLEST else SIMPLEST
    return Advice(
        bags,
        best,
        rival,
        beats(best, rival),
        float(np.mean(drawn[best] < guess * (1 - 1e-9))),
        _enough_to_tell(pilot, forecasts, best, rival),
    )


def _enough_to_tell(
    pilot: PilotErrors, forecasts: Mapping[str, Forecast], one: str, other: str
) -> int | None:
    """Size of a pilot in which the forecast difference stands out of its noise."""
    rows: list[Array] = [pilot.wrong[pilot.poolings.index(name), -1] for name in (one, other)]
    noise = (1 + pilot.overlap) * max(float(np.var(rows[0] - rows[1])), pilot.resolution)
    for size in np.unique(np.round(np.geomspace(pilot.bags, 64 * pilot.bags, 25)).astype(int)):
        gap = abs(float(np.diff([forecasts[name].error(size)[1] for name in (one, other)])[0]))
        if gap > max(MATTERS, norm.ppf(SURE) * np.sqrt(noise / size)):
            return int(size)
    return None
