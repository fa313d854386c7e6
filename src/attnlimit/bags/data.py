"""Labelled bags of instances, and bags stacked in one array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from attnlimit.checks import Array, real_array
from attnlimit.errors import BadInput
from attnlimit.sparse.training import Blocks

NEGATIVE = {
    "-1", "0", "negative", "neg", "false", "no", "normal", "control", "healthy", "benign", "absent",
}  # fmt: skip
POSITIVE = {
    "1", "+1", "positive", "pos", "true", "yes", "tumor", "tumour", "cancer", "malignant",
    "disease", "diseased", "present",
}  # fmt: skip
"""Labels, in lower case, that say which class is the noise and which has the signal."""


@dataclass(frozen=True, eq=False, repr=False)
class Bags:
    """Labelled bags: each an array (instances, dim), with labels of two values, as given."""

    instances: tuple[Array, ...]
    labels: NDArray[Any]
    names: tuple[str, ...] | None = None
    """Names of the bags; otherwise they are numbered."""
    classes: tuple[Any, Any] = (-1, 1)
    """The two labels, that of the negative class first."""

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        lengths = self.lengths
        return (
            f"Bags({len(self)} bags of {lengths.min()} to {lengths.max()} instances, dim "
            f"{self.dim}; {int((self.signs > 0).sum())} labelled {self.classes[1]!s})"
        )

    @cached_property
    def signs(self) -> NDArray[np.int64]:
        """-1 for each negative bag and +1 for each positive one."""
        return np.where(self.labels == self.classes[1], 1, -1).astype(np.int64)

    @property
    def dim(self) -> int:
        """Features of an instance."""
        return self.instances[0].shape[1]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Instances in each bag."""
        return np.array([len(bag) for bag in self.instances])

    @cached_property
    def _membership(self) -> csr_array:
        """Which bag holds which distinct instance, (bags, distinct); equal bit by bit."""
        numbers: dict[bytes, int] = {}
        which = [
            numbers.setdefault(row.tobytes(), len(numbers)) for bag in self.instances for row in bag
        ]
        bag = np.repeat(np.arange(len(self)), self.lengths)
        pairs = np.unique(np.stack([bag, which]), axis=1)
        return csr_array((np.ones(pairs.shape[1]), tuple(pairs)))

    @property
    def shared(self) -> float:
        """Fraction of the bags' distinct instances that are in another bag too."""
        holders = self._membership.sum(axis=0)
        return float(np.mean(holders[self._membership.indices] > 1))

    @property
    def groups(self) -> NDArray[np.int64]:
        """Group number of each bag; bags that share instances, even through others, are a group."""
        shared = self._membership @ self._membership.T
        return np.asarray(connected_components(shared)[1], dtype=np.int64)

    def of_class(self, sign: int) -> list[Array]:
        """Negative bags (-1) or positive ones (+1)."""
        return [bag for bag, y in zip(self.instances, self.signs, strict=True) if y == sign]

    def subset(self, index: Sequence[int] | NDArray[np.int64]) -> Bags:
        """Bags at the given indices."""
        names = None if self.names is None else tuple(self.names[i] for i in index)
        chosen = tuple(self.instances[i] for i in index)
        return Bags(chosen, self.labels[np.asarray(index)], names, self.classes)

    def transformed(self, matrix: Array, centre: Array) -> Bags:
        """Replace every instance x by (x - centre) @ matrix."""
        moved = tuple((bag - centre) @ matrix for bag in self.instances)
        return Bags(moved, self.labels, self.names, self.classes)

    def name(self, index: int) -> str:
        """Name of a bag, or its number."""
        return str(index) if self.names is None else self.names[index]


def make_bags(
    bags: Iterable[Array],
    labels: Iterable[object],
    names: Iterable[object] | None = None,
    *,
    positive: object = None,
) -> Bags:
    """Check bags and labels: same dimension everywhere, none empty, both classes present.

    Parameters
    ----------
    bags : arrays (instances, dim)
    labels : one for each bag
        Two values: 0 and 1, -1 and +1, "normal" and "tumor", or any others. They are kept as given.
    names : optional
        Names of the bags for errors and pages; they are numbered by default.
    positive : optional
        Label of the class that has the signal. By default it is recognised from words such as
        positive, tumor or malignant, or else the second label in sorted order.

    Examples
    --------
    >>> import numpy as np
    >>> from attnlimit.bags import make_bags
    >>> make_bags([np.zeros((2, 3)), np.ones((4, 3))], ["normal", "tumor"])
    Bags(2 bags of 2 to 4 instances, dim 3; 1 labelled tumor)
    """
    if not all(isinstance(given, Iterable) for given in (bags, labels)):
        raise BadInput("bags must be arrays (instances, dim), and labels a list of one for each.")
    arrays, values = list(bags), list(labels)
    called = None if names is None else tuple(map(str, names))
    if len(arrays) != len(values) or (called is not None and len(called) != len(arrays)):
        raise BadInput(f"there are {len(arrays)} bags but {len(values)} labels; give one a bag.")
    checked = [
        real_array(bag, f"bag {name}", ndim=2)
        for bag, name in zip(arrays, called or range(len(arrays)), strict=True)
    ]
    check_instances(checked, called)
    if len(checked) == 1:
        raise BadInput("there is only one bag; bags of both classes are needed.")
    if all(len(array) == 1 for array in checked):
        raise BadInput(
            "every bag holds one instance, so there is nothing to pool: check which column names "
            "the bag, or use a classifier of instances."
        )
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    return Bags(tuple(checked), np.array(plain), called, order_classes(plain, positive))


def check_instances(bags: Sequence[Array], names: Sequence[str] | None = None) -> None:
    """Raise BadInput if there are no bags, if one is empty, or if features differ in number."""
    if len(bags) == 0:
        raise BadInput("there are no bags; give arrays (instances, dim), and a label for each.")
    empty = [number for number, bag in enumerate(bags) if bag.size == 0]
    if empty:
        name = empty[0] if names is None else names[empty[0]]
        raise BadInput(f"bag {name} is empty; remove it or give it at least one instance.")
    dims = {bag.shape[1] for bag in bags}
    if len(dims) > 1:
        raise BadInput(
            f"all instances must have the same number of columns (features), but bags have "
            f"{sorted(dims)}; use one feature extractor for all."
        )


def order_classes(labels: Iterable[Any], positive: object = None) -> tuple[Any, Any]:
    """Return the two labels, the negative class first."""
    given = list(labels)
    try:
        classes = sorted(set(given))
    except TypeError:
        raise BadInput("labels must be two values of one kind, such as 0 and 1.") from None
    unknown = any(value is None or value != value for value in given)
    if unknown or any(isinstance(value, complex) for value in given):
        raise BadInput("a bag has no label that can be used; give every bag one of two values.")
    if len(classes) != 2:
        some = ", ".join(repr(value) for value in classes[:4])
        only = "every bag is labelled" if len(classes) == 1 else f"there are {len(classes)} labels:"
        raise BadInput(
            f"bags of both classes are needed, two labels in all, but {only} {some}; drop bags of "
            "other classes."
        )
    negative, second = classes
    if positive is not None:
        chosen = [value for value in classes if value == positive or str(value) == str(positive)]
        if not chosen:
            raise BadInput(f"positive must be {negative!r} or {second!r}, got {positive!r}.")
        return (negative, second) if chosen[0] == second else (second, negative)
    first_word, second_word = (_word(value) for value in classes)
    swapped = first_word in POSITIVE or second_word in NEGATIVE
    straight = first_word in NEGATIVE or second_word in POSITIVE
    return (second, negative) if swapped and not straight else (negative, second)


def _word(value: object) -> str:
    return str(value).strip().lower().removesuffix(".0")


def check_bags(bags: object) -> Bags:
    """Return `bags` if they are Bags."""
    if not isinstance(bags, Bags):
        raise BadInput(
            f"bags must be labelled Bags, got {type(bags).__name__}; make them with "
            "al.bags.make_bags(arrays, labels) or al.bags.read_bags(path)."
        )
    return bags


@dataclass(frozen=True, eq=False)
class Stacked:
    """Instances (M, d) of all bags, those of one bag next to each other; no bag is empty."""

    instances: Array
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, bags: Sequence[Array]) -> Stacked:
        """Stack arrays (instances, d)."""
        return cls(np.concatenate(bags), np.array([len(bag) for bag in bags]))

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Index of each bag's first instance."""
        return np.cumsum(self.lengths) - self.lengths

    def subset(self, index: NDArray[np.int64]) -> Stacked:
        """Bags at the given indices."""
        return Stacked.of(list(map(self.split().__getitem__, index)))

    def split(self, values: Array | None = None) -> list[Array]:
        """Values of all instances (the instances themselves by default), one array a bag."""
        return np.split(self.instances if values is None else values, self.starts[1:])

    def sums(self, values: Array) -> Array:
        """Sum over each bag of values (M, ...)."""
        return np.asarray(np.add.reduceat(values, self.starts, axis=0))

    def largest(self, values: Array) -> Array:
        """Maximum over each bag of values (M, ...)."""
        return np.asarray(np.maximum.reduceat(values, self.starts, axis=0))

    def spread(self, values: Array) -> Array:
        """Values of bags, repeated for each of their instances."""
        return np.repeat(values, self.lengths, axis=0)

    def softmax(self, scores: Array) -> Array:
        """Attention weights (M,): they sum to one in every bag."""
        raised = np.exp(scores - self.spread(self.largest(scores)))
        return np.asarray(raised / self.spread(self.sums(raised)))

    def mean(self) -> Array:
        """Mean instance of each bag."""
        return self.sums(self.instances) / self.lengths[:, None]

    def attended(self, scores: Array) -> Array:
        """Instances of each bag averaged with the softmax of their scores."""
        return self.sums(self.softmax(scores)[:, None] * self.instances)

    def blocks(self, labels: NDArray[Any]) -> Blocks:
        """Blocks of bags of equal length, the form that the gradient steps take."""
        bags = self.split()
        groups = [np.flatnonzero(self.lengths == length) for length in np.unique(self.lengths)]
        stacked = [
            (np.stack([bags[i] for i in group]), labels[group].astype(float)) for group in groups
        ]
        return lambda: iter(stacked)
