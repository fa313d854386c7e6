"""Bags: labelled sets of instances, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from attnlimit.checks import Array, real_array
from attnlimit.errors import BadInput
from attnlimit.sparse.train.descent import Blocks
from attnlimit.sparse.train.stacked import Stacked

NEGATIVE = {"-1", "0", "negative", "neg", "false"}
POSITIVE = {"1", "+1", "positive", "pos", "true"}


@dataclass(frozen=True, eq=False)
class Bags:
    """Labelled bags: each an array (instances, dim), with labels -1 or +1."""

    instances: tuple[Array, ...]
    labels: NDArray[np.int64]
    names: tuple[str, ...] | None = None
    """What the bags are called where they come from; else they are numbered."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def dim(self) -> int:
        """Numbers in one instance."""
        return self.instances[0].shape[1]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Instances in each bag."""
        return np.array([len(bag) for bag in self.instances])

    @cached_property
    def _holds(self) -> csr_array:
        """Which bag holds which of the distinct instances, (bags, distinct); equal bit by bit."""
        seen: dict[bytes, int] = {}
        which = [seen.setdefault(row.tobytes(), len(seen)) for bag in self.instances for row in bag]
        place = np.repeat(np.arange(len(self)), self.lengths)
        pairs = np.unique(np.stack([place, which]), axis=1)
        return csr_array((np.ones(pairs.shape[1]), tuple(pairs)))

    @property
    def shared(self) -> float:
        """Part of the distinct instances of the bags that are in another bag too."""
        many = self._holds.sum(axis=0)
        return float(np.mean(many[self._holds.indices] > 1))

    @property
    def groups(self) -> NDArray[np.int64]:
        """A number for each bag, the same for bags that share instances, directly or by others."""
        return np.asarray(connected_components(self._holds @ self._holds.T)[1], dtype=np.int64)

    def of_class(self, label: int) -> list[Array]:
        """The bags of one class."""
        return [bag for bag, y in zip(self.instances, self.labels, strict=True) if y == label]

    def subset(self, index: Sequence[int] | NDArray[np.int64]) -> Bags:
        """The bags at these places."""
        names = None if self.names is None else tuple(self.names[i] for i in index)
        return Bags(tuple(self.instances[i] for i in index), self.labels[np.asarray(index)], names)

    def transformed(self, matrix: Array, centre: Array) -> Bags:
        """Every instance x replaced by (x - centre) @ matrix."""
        moved = tuple((bag - centre) @ matrix for bag in self.instances)
        return Bags(moved, self.labels, self.names)

    def name(self, place: int) -> str:
        """What a bag is called: its name, or its number."""
        return str(place) if self.names is None else self.names[place]

    def blocks(self) -> Blocks:
        """Blocks of bags of one length each, as training wants them."""
        return Stacked.of(self.instances).blocks(self.labels)


def make_bags(
    bags: Iterable[Array], labels: Iterable[object], names: Iterable[object] | None = None
) -> Bags:
    """Check bags and labels: same dimension everywhere, none empty, both classes present.

    Parameters
    ----------
    bags : arrays (instances, dim)
    labels : one for each bag
        0 and 1, -1 and +1, or negative and positive.
    names : optional
        What the bags are called, in errors and on pages; by default they are numbered.
    """
    arrays, marks = list(bags), list(labels)
    called = None if names is None else tuple(map(str, names))
    if not arrays:
        raise BadInput("there are no bags.")
    if len(arrays) != len(marks):
        raise BadInput(f"there are {len(arrays)} bags but {len(marks)} labels; give one a bag.")
    checked = []
    for number, bag in enumerate(arrays):
        name = f"bag {number if called is None else called[number]}"
        array = real_array(bag, name, ndim=2)
        if array.size == 0:
            raise BadInput(f"{name} is empty; remove it or give it at least one instance.")
        checked.append(array)
    dims = {array.shape[1] for array in checked}
    if len(dims) > 1:
        raise BadInput(
            f"all instances must have the same number of columns, but bags have {sorted(dims)}; "
            "use one feature extractor for all."
        )
    if len(checked) == 1:
        raise BadInput("there is only one bag; bags of both classes are needed.")
    if all(len(array) == 1 for array in checked):
        raise BadInput(
            "every bag holds one instance, so there is nothing to pool: check which column names "
            "the bag, or use a classifier of instances."
        )
    y = np.array([_label(mark) for mark in marks], dtype=np.int64)
    if len(set(y.tolist())) < 2:
        only = "positive" if y[0] > 0 else "negative"
        raise BadInput(
            f"every bag is {only}; bags of both classes are needed to estimate a signal."
        )
    return Bags(tuple(checked), y, called)


def _label(mark: object) -> int:
    text = str(mark).strip().lower()
    text = text[:-2] if text.endswith(".0") else text
    if text in POSITIVE:
        return 1
    if text in NEGATIVE:
        return -1
    given = mark.item() if isinstance(mark, np.generic) else mark
    raise BadInput(
        f"a bag's label must be 0/1, -1/+1 or negative/positive, got {given!r}; name two classes "
        "so, and drop bags of others."
    )
