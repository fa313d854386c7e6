"""Plans for bags with several signal directions, other signals and lengths.

First the exact asymptotics of each kind of bags against readouts trained on drawn ones, then plans
from pilots of that kind against poolings trained on more bags. python studies/bag_kinds.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from scipy.linalg import hadamard
from scipy.special import softmax
from scipy.stats import binom

from attnlimit.bags import Bags
from attnlimit.bags import plan as plan_bags
from attnlimit.bags.data import Stacked
from attnlimit.checks import Array
from attnlimit.sparse import SparseTask, query_alignment
from attnlimit.sparse.losses import as_loss
from attnlimit.sparse.quadrature import SEED, FeaturePoints, bag_uniforms, ordered_scores
from attnlimit.sparse.saddle_point import SaddleSystem, plain_start
from attnlimit.sparse.training import fit_readout, query_steps
from planned_bags import measure_plan
from tables import write_tables

STRENGTH = 4.0
"""Of the mean of the directions: each of K has strength 4 sqrt(K)."""
COSINE, SHARPNESS, RIDGE, ALPHA, DIM = 0.8, 2.0, 0.1, 2.0, 300
DRAWN = 10
STEPS = ("logistic", 1.0, 4.0)
"""Loss, and the sizes of the first step."""
PLAN_DIM, PILOT, PILOTS, BUDGETS = 40, 200, 6, (400, 1600)


@dataclass(frozen=True)
class Kind:
    """How positive bags are made; half of the bags are negative, noise only."""

    directions: int = 1
    variance: float = 1.0
    """Of the signal instances, in every direction, in units of the noise."""
    binomial: bool = False
    """Whether each instance is a signal by chance, given that one is; one signal otherwise."""
    lengths: tuple[int, ...] = (10,)

    def counts(self, length: int) -> Iterator[tuple[int, float]]:
        """Numbers of signals in a positive bag, and their chances."""
        if not self.binomial:
            yield 1, 1.0
            return
        chance = binom.pmf(np.arange(length + 1), length, 1 / length)
        for many in range(1, length + 1):
            if chance[many] > 1e-6:
                yield many, float(chance[many] / (1 - chance[0]))

    def draw(self, n: int, rng: np.random.Generator, dim: int) -> Bags:
        """Draw labelled bags."""
        labels, bags = np.where(rng.random(n) < 0.5, 1, -1), []
        shifts = STRENGTH * np.sqrt(self.directions) * directions(self.directions, dim)
        for label in labels:
            length = int(rng.choice(self.lengths))
            bag = rng.standard_normal((length, dim))
            if label > 0:
                many, chance = zip(*self.counts(length), strict=True)
                hits = int(rng.choice(many, p=np.array(chance) / sum(chance)))
                which = rng.integers(self.directions, size=hits)
                bag[:hits] *= np.sqrt(self.variance)
                bag[:hits] += shifts[which]
            bags.append(bag)
        return Bags(tuple(bags), labels.astype(np.int64))

    def points(self) -> FeaturePoints:
        """Points of the exact asymptotics, for a query with some cosine to the mean direction.

        Seen from the mean direction, K directions of strength 4 sqrt(K) are one of strength 4:
        the readout weighs all of them alike, as its loss is convex and they are as frequent.
        """
        parts = []
        for length in self.lengths:
            u = bag_uniforms(length, 11, SEED)
            positive = [(1.0, many, chance) for many, chance in self.counts(length)]
            for label, many, chance in [*positive, (-1.0, 0, 1.0)]:
                weight, normals, hit, noise = ordered_scores(u, many, length - many)
                spread = np.array([np.sqrt(self.variance)] * many + [1.0] * (length - many))
                scores = np.concatenate([hit, noise], axis=1) * spread
                scores[:, :many] += STRENGTH * COSINE
                p = softmax(SHARPNESS * scores, axis=1)
                k, rho = (p * scores).sum(axis=1), np.sqrt(((p * spread) ** 2).sum(axis=1))
                across = STRENGTH * np.sqrt(1 - COSINE**2) * p[:, :many].sum(axis=1)
                share = 0.5 * chance / len(self.lengths) / weight.sum()
                parts.append((share * weight, np.full(len(u), label), k, across, rho, normals))
        return FeaturePoints(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def directions(many: int, dim: int) -> Array:
    """Orthogonal unit vectors (many, dim), all entries of one size: no feature is special."""
    return np.tile(hadamard(4)[:many], dim // 4) / np.sqrt(dim)


KINDS = {
    "one direction": Kind(),
    "two directions": Kind(directions=2),
    "three directions": Kind(directions=3),
    "signals a quarter as spread": Kind(variance=0.25),
    "signals four times as spread": Kind(variance=4.0),
    "binomial number of signals": Kind(binomial=True),
    "5 to 15 instances": Kind(lengths=tuple(range(5, 16))),
}


def mean_direction(kind: Kind, dim: int) -> Array:
    return directions(kind.directions, dim).sum(axis=0) / np.sqrt(kind.directions)


def predicted_readout(kind: Kind) -> float:
    """Test error of the readout on a fixed query, by the asymptotics."""
    points = kind.points()
    system = SaddleSystem(points, as_loss("logistic"), RIDGE, ALPHA)
    solution = system.solve(plain_start(points, RIDGE, ALPHA))
    assert solution.converged, solution
    return points.error(
        solution.query_weight, solution.signal_weight, solution.bias, solution.noise_scale
    )


def trained_readout(kind: Kind, rng: np.random.Generator) -> float:
    """The same of a readout trained on drawn bags, on fresh ones."""
    mean, other = mean_direction(kind, DIM), directions(4, DIM)[3]
    query = COSINE * mean + np.sqrt(1 - COSINE**2) * other

    def features(n: int) -> tuple[Array, Array]:
        bags = kind.draw(n, rng, DIM)
        stacked = Stacked.of(bags.instances)
        return stacked.attended(SHARPNESS * (stacked.instances @ query)), bags.labels

    fitted = fit_readout(*features(round(ALPHA * DIM)), ridge=RIDGE)
    tested, labels = features(4000)
    return float(np.mean(labels * fitted(tested) <= 0))


def stepped_cosine(kind: Kind, dim: int, rng: np.random.Generator) -> float:
    """Cosine with the mean direction of a query after two gradient steps on drawn bags."""
    bags = kind.draw(round(ALPHA * dim), rng, dim)
    query = query_steps(Stacked.of(bags.instances).blocks(bags.labels), *STEPS).query
    return float(query @ mean_direction(kind, dim) / np.linalg.norm(query))


def planned(name: str, kind: Kind) -> pd.DataFrame:
    """Forecasts from several pilots, beside errors measured once."""
    draw = partial(kind.draw, dim=PLAN_DIM)
    rngs = [np.random.default_rng([1, number]) for number in range(PILOTS + 1)]
    plans = [plan_bags(draw(PILOT, rng), BUDGETS) for rng in rngs[1:]]
    result = measure_plan(plans[0], draw, draw(4000, rngs[0]), replicates=4)
    parts = []
    for pilot, plan in enumerate(plans):
        predicted = [plan.predicted(row.pooling, row.bags) for row in result.itertuples()]
        low, middle, high = np.array(predicted).T
        forecast = {"low": low, "predicted": middle, "high": high}
        parts.append(result.drop(columns="test").assign(kind=name, pilot=pilot, **forecast))
    return pd.concat(parts)


def compared(law: float, measure: Callable[[np.random.Generator], float]) -> dict[str, float]:
    """The law beside the mean of some draws."""
    drawn = [measure(np.random.default_rng(seed)) for seed in range(DRAWN)]
    stderr = np.std(drawn, ddof=1) / np.sqrt(DRAWN)
    return {"predicted": law, "measured": float(np.mean(drawn)), "stderr": float(stderr)}


def main() -> None:
    readouts = [
        {"kind": name, **compared(predicted_readout(kind), partial(trained_readout, kind))}
        for name, kind in KINDS.items()
    ]
    law = query_alignment(SparseTask(10, 1, STRENGTH), ALPHA, *STEPS).cosine
    cosines = [
        {"kind": name, "dim": dim, **compared(law, partial(stepped_cosine, kind, dim))}
        for name, kind in list(KINDS.items())[:3]
        for dim in (160, 320, 640)
    ]
    plans = pd.concat([planned(name, kind) for name, kind in KINDS.items()])
    write_tables(
        {
            "readouts-of-other-bags": pd.DataFrame(readouts),
            "cosines-of-several-directions": pd.DataFrame(cosines),
            "plans-for-other-bags": plans,
        }
    )


if __name__ == "__main__":
    main()
