"""Cross-validation of poolings on parts of a pilot set of bags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlimit.bags.data import Bags
from attnlimit.checks import Array
from attnlimit.errors import BadInput, NotConverged

Progress = Callable[[int, int], None]
FRACTIONS = (0.3, 0.55, 1.0)
"""Parts of a fold's training bags that are trained on."""
FEWEST = 2
"""Bags of each class to train on, at least."""
LARGE = 4_000_000
"""Numbers in a pilot from which on it is cut in two, not in five."""
MANY, WIDE = 300, 300
"""Bags, and directions to be whitened, from which on it is cut once."""


class Effort(NamedTuple):
    """How often a pilot is cut, and into how many parts."""

    folds: int
    repeats: int


def affordable(bags: Bags) -> Effort:
    """Less for larger pilots, whose errors are known well after one round, and for wider ones."""
    instances = int(bags.lengths.sum())
    if bags.dim <= instances and instances * bags.dim > LARGE:
        return Effort(2, 1)
    wide = min(instances, bags.dim) > WIDE
    return Effort(5, 1 if wide else int(np.clip(MANY // len(bags), 1, 4)))


@dataclass(frozen=True, eq=False)
class PilotErrors:
    """How often each bag was misclassified when it was left out of training."""

    poolings: tuple[str, ...]
    sizes: NDArray[np.int64]
    wrong: Array
    """(poolings, sizes, bags): part of the repeats in which the bag was misclassified."""
    folds: int
    repeats: int

    @property
    def bags(self) -> int:
        """Bags of the pilot."""
        return self.wrong.shape[2]

    @property
    def resolution(self) -> float:
        """The smallest error that the pilot can see: one bag."""
        return 1 / self.bags

    @property
    def error(self) -> Array:
        """Cross-validated error (poolings, sizes)."""
        return np.asarray(self.wrong.mean(axis=2))

    @property
    def stderr(self) -> Array:
        """Its standard error: of so many test bags, and of training sets that overlap."""
        return self.noise(self.error)

    def noise(self, error: Array | float) -> Array:
        """Standard deviation of what this pilot measures, where the error is this."""
        smooth = (np.asarray(error) * self.bags + 0.5) / (self.bags + 1)
        return np.asarray(np.sqrt((1 + self.overlap) * smooth * (1 - smooth) / self.bags))

    @property
    def overlap(self) -> float:
        """Variance that all folds share, as they train on the same bags, over that of test bags.

        Nadeau and Bengio (2003): bags in a fold over bags in training, for each fold.
        """
        return self.folds / (self.folds - 1)

    def angles(self) -> Array:
        """Return arcsin sqrt of the errors (poolings, sizes), their differences shrunk.

        Poolings are tested on the same bags, and the best of them owes something to luck, which
        is taken away as Efron and Morris (1973) do. So little is known of the spread of three or
        fewer that they stay as they are.
        """
        raw = np.arcsin(np.sqrt((self.error * self.bags + 0.375) / (self.bags + 0.75)))
        many = len(self.poolings)
        if many < 4:
            return np.asarray(raw)
        middle, level = raw.mean(axis=0), self.error.mean()
        unlike = self.wrong[:, None] - self.wrong[None]
        noise = float(unlike.var(axis=3).sum()) / (many * (many - 1) * len(self.sizes))
        # half of a difference's variance, and from errors to angles
        to_angles = 4 * max(level * (1 - level), self.resolution)
        luck = (1 + self.overlap) * noise / (2 * self.bags * to_angles)
        spread = float(((raw - middle) ** 2).sum(axis=0).mean()) / (many - 1)
        owed = (many - 3) / (many - 1) * luck / max(spread, 1e-12)
        return np.asarray(middle + max(0.0, 1 - owed) * (raw - middle))

    def correlation(self, pooling: int) -> Array:
        """Correlation of the errors at different sizes (sizes, sizes), which share test bags."""
        return _correlation(self.wrong[pooling])

    def between(self) -> Array:
        """Correlation of the poolings' errors at the largest size (poolings, poolings)."""
        return _correlation(self.wrong[:, -1])


def _correlation(rows: Array) -> Array:
    centred = rows - rows.mean(axis=1, keepdims=True)
    size = np.sqrt((centred**2).sum(axis=1))
    product = np.outer(size, size)
    ratio = np.divide(centred @ centred.T, product, out=np.zeros_like(product), where=product > 0)
    ratio = np.clip(ratio, 0.0, 0.95)
    np.fill_diagonal(ratio, 1.0)
    return ratio


def sharing_groups(bags: Bags, folds: int) -> NDArray[np.int64] | None:
    """Groups of bags that share instances, to be left out together.

    None where that cannot be: one is larger than half a fold, or a class has too few of them.
    """
    groups = bags.groups
    _, first = np.unique(groups, return_index=True)
    led = np.bincount(bags.signs[first] > 0, minlength=2)
    small = np.bincount(groups).max() <= max(1, len(bags) // (2 * folds))
    return groups if small and led.min() >= max(folds, FEWEST + 1) else None


def stratified_folds(
    labels: NDArray[np.int64],
    many: int,
    rng: np.random.Generator,
    groups: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Number of the fold of each bag; every fold has its share of both classes.

    Bags of one group are in one fold, that of the group's first bag.
    """
    named = np.arange(len(labels)) if groups is None else groups
    _, first, group = np.unique(named, return_index=True, return_inverse=True)
    order = [rng.permutation(np.flatnonzero(labels[first] == label)) for label in (-1, 1)]
    fold = np.empty(len(first), dtype=np.int64)
    fold[np.concatenate(order)] = np.arange(len(first)) % many
    return np.asarray(fold[group])


def stratified_part(
    labels: NDArray[np.int64], size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Places of `size` bags drawn at random, with about the same share of both classes."""
    hits = round(float(np.mean(labels > 0)) * size)
    hits = int(np.clip(hits, FEWEST, max(FEWEST, size - FEWEST)))
    positive, negative = (rng.permutation(np.flatnonzero(labels == label)) for label in (1, -1))
    return np.concatenate([positive[:hits], negative[: size - hits]])


def cross_validate(
    bags: Bags,
    poolings: Mapping[str, Any],
    effort: Effort,
    *,
    fractions: tuple[float, ...] = FRACTIONS,
    seed: int | np.random.SeedSequence | np.random.Generator = 0,
    progress: Progress | None = None,
) -> PilotErrors:
    """Train scikit-learn estimators on parts of a pilot, and test each on bags left out.

    Every repeat cuts the pilot into folds; for each fold every pooling is trained on growing parts
    of the other folds, always the same for all poolings, and tested on the fold. Bags that share
    instances are in one fold.
    """
    from sklearn.base import clone

    smallest = int(min((bags.signs > 0).sum(), (bags.signs < 0).sum()))
    if smallest <= FEWEST:
        raise BadInput(
            f"the smaller class has {smallest} bag(s), but to see how well poolings do, some are "
            f"left out and {FEWEST} must stay; label at least {FEWEST + 1} bags of each class."
        )
    folds, repeats = min(effort.folds, smallest), effort.repeats
    trained_on = len(bags) - -(-len(bags) // folds)
    sizes = np.unique([max(2 * FEWEST, round(part * trained_on)) for part in fractions])
    wrong = np.zeros((len(poolings), len(sizes), len(bags)))
    rng = np.random.default_rng(seed)
    groups = sharing_groups(bags, folds)
    done, total = 0, repeats * folds * len(sizes)
    for _ in range(repeats):
        fold = stratified_folds(bags.signs, folds, rng, groups)
        for number in range(folds):
            rest, left_out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
            tests = {"left out": bags.subset(left_out)}
            for at, size in enumerate(sizes):
                train = bags.subset(rest[stratified_part(bags.signs[rest], int(size), rng)])
                for row, pooling in enumerate(poolings.values()):
                    wrong[row, at, left_out] += misses(clone(pooling), train, tests)["left out"]
                done += 1
                if progress is not None:
                    progress(done, total)
    return PilotErrors(tuple(poolings), sizes, wrong / repeats, folds, repeats)


def misses(estimator: Any, train: Bags, tests: Mapping[str, Bags]) -> dict[str, NDArray[np.bool_]]:
    """Train on some bags, and say which of the bags of each test set are misclassified."""
    try:
        estimator.fit(list(train.instances), train.signs)
    except NotConverged:
        # a user would fall back on the likelier class
        likelier = 1 if np.mean(train.signs > 0) > 0.5 else -1
        return {name: test.signs != likelier for name, test in tests.items()}
    return {
        name: np.asarray(estimator.predict(list(test.instances)) != test.signs)
        for name, test in tests.items()
    }


LAWS = {
    "mean pooling": "pooled",
    "max pooling": "pooled",
    "attention": "attention",
    "joint attention": "attention",
}
"""Every pooling, in the order of how much is trained, and the law of its learning curve."""
THEORY = ("mean pooling", "attention")
"""Poolings whose level the theory gives too; joint training overfits, which has no law here."""
SHRINKAGES = (None, 1.0)
"""Ledoit and Wolf's, or so much that features are standardised and no more."""


def poolings(shrinkage: float | None) -> dict[str, Any]:
    """Scikit-learn estimators, not fitted yet; ridge and sharpness are theirs to choose."""
    from attnlimit.bags.pooling import AttentionPooling, MaxPooling, MeanPooling

    return {
        "mean pooling": MeanPooling((0.01, 0.1, 1.0), shrinkage=shrinkage),
        "max pooling": MaxPooling((0.01, 0.1, 1.0)),
        "attention": AttentionPooling("two-step", (0.01, 0.1), 2.0, shrinkage=shrinkage),
        "joint attention": AttentionPooling("joint", 0.05, 1.0, shrinkage=shrinkage),
    }


def best_shrinkage(bags: Bags, effort: Effort, seed: np.random.SeedSequence) -> float | None:
    """Choose the coordinates in which mean pooling, the fastest to train, errs least."""
    tried = {str(value): poolings(value)["mean pooling"] for value in SHRINKAGES}
    tested = cross_validate(bags, tried, effort, fractions=(1.0,), seed=seed)
    return SHRINKAGES[int(np.argmin(tested.error[:, -1]))]
