"""Bags: labelled sets of instances, read from a folder or a table and checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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

    def of_class(self, label: int) -> list[Array]:
        """The bags of one class."""
        return [bag for bag, y in zip(self.instances, self.labels, strict=True) if y == label]

    def subset(self, index: Sequence[int] | NDArray[np.int64]) -> Bags:
        """The bags at these places."""
        return Bags(tuple(self.instances[i] for i in index), self.labels[np.asarray(index)])

    def transformed(self, matrix: Array, centre: Array) -> Bags:
        """Every instance x replaced by (x - centre) @ matrix."""
        return Bags(tuple((bag - centre) @ matrix for bag in self.instances), self.labels)

    def blocks(self) -> Blocks:
        """Blocks of bags of one length each, as training wants them."""
        return Stacked.of(self.instances).blocks(self.labels)


def make_bags(bags: Iterable[Array], labels: Iterable[object]) -> Bags:
    """Check bags and labels: same dimension everywhere, none empty, both classes present."""
    arrays, marks = list(bags), list(labels)
    if not arrays:
        raise BadInput("there are no bags.")
    if len(arrays) != len(marks):
        raise BadInput(f"there are {len(arrays)} bags but {len(marks)} labels; give one a bag.")
    checked = []
    for number, bag in enumerate(arrays):
        array = real_array(bag, f"bag {number}", ndim=2)
        if array.size == 0:
            raise BadInput(f"bag {number} is empty; remove it or give it at least one instance.")
        checked.append(array)
    dims = {array.shape[1] for array in checked}
    if len(dims) > 1:
        raise BadInput(
            f"all instances must have the same number of columns, but bags have {sorted(dims)}; "
            "use one feature extractor for all."
        )
    y = np.array([_label(mark) for mark in marks], dtype=np.int64)
    if len(set(y.tolist())) < 2:
        only = "positive" if y[0] > 0 else "negative"
        raise BadInput(
            f"every bag is {only}; bags of both classes are needed to estimate a signal."
        )
    return Bags(tuple(checked), y)


def _label(mark: object) -> int:
    text = str(mark).strip().lower()
    text = text[:-2] if text.endswith(".0") else text
    if text in POSITIVE:
        return 1
    if text in NEGATIVE:
        return -1
    raise BadInput(f"a bag's label must be 0/1, -1/+1 or negative/positive, got {mark!r}.")


def read_bags(path: str | Path, bag: str = "bag", label: str = "label") -> Bags:
    """Read labelled bags from disk.

    A CSV or parquet file has one row for each instance: the column `bag` says which bag it is
    in, `label` the bag's label, all other columns are features. A folder has one .npy array
    (instances, dim) for each bag, in subfolders `positive` and `negative`, or flat with a
    `labels.csv` of columns bag (the file's name without .npy) and label.
    """
    source = Path(path)
    if source.is_dir():
        return _read_folder(source)
    if not source.exists():
        raise BadInput(f"there is no file or folder {source}.")
    suffix = source.suffix.lower()
    if suffix not in {".csv", ".parquet", ".pq"}:
        raise BadInput(f"{source.name} must be a .csv or .parquet file, or a folder of .npy files.")
    try:
        table = pd.read_csv(source) if suffix == ".csv" else pd.read_parquet(source)
    except Exception as error:  # a damaged table can trip the reader anywhere
        raise BadInput(f"{source.name} could not be read: {_reason(error)}.") from None
    return _from_table(table, bag, label, source.name)


def _reason(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _from_table(table: pd.DataFrame, bag: str, label: str, name: str) -> Bags:
    for column in (bag, label):
        if column not in table:
            some = ", ".join(repr(str(one)) for one in table.columns[:8])
            raise BadInput(
                f"{name} has no column {column!r}; its columns are {some}: "
                "name it with --bag or --label."
            )
        if not table[column].map(pd.api.types.is_hashable).all():
            raise BadInput(f"column {column!r} of {name} holds lists; give one value in each row.")
    features = table.drop(columns=[bag, label])
    words = [str(c) for c in features if not pd.api.types.is_numeric_dtype(features[c])]
    if words:
        raise BadInput(f"column {words[0]!r} of {name} is not numeric; drop or encode it.")
    if features.shape[1] == 0:
        raise BadInput(f"{name} has no feature columns besides {bag!r} and {label!r}.")
    values = features.to_numpy(dtype=float)
    groups = table.groupby(bag, sort=True)
    mixed = groups[label].nunique()
    if (mixed > 1).any():
        raise BadInput(f"bag {mixed.index[mixed > 1][0]!r} of {name} has more than one label.")
    indices = list(groups.indices.values())
    marks = [table[label].iloc[rows[0]] for rows in indices]
    return make_bags([values[rows] for rows in indices], marks)


def _read_folder(source: Path) -> Bags:
    listing = source / "labels.csv"
    if listing.exists():
        try:
            table = pd.read_csv(listing, dtype=str)
        except (ValueError, OSError) as error:
            raise BadInput(f"{listing} could not be read: {_reason(error)}.") from None
        if not {"bag", "label"} <= set(table.columns):
            raise BadInput(f"{listing} must have the columns bag and label.")
        pairs = list(zip(table["bag"], table["label"], strict=True))
        files = [(source / f"{str(bag).removesuffix('.npy')}.npy", mark) for bag, mark in pairs]
    else:
        files = [
            (file, folder.name)
            for folder in sorted(source.iterdir())
            if folder.is_dir() and folder.name.lower() in NEGATIVE | POSITIVE
            for file in sorted(folder.glob("*.npy"))
        ]
        if not files:
            raise BadInput(
                f"{source} has neither labels.csv nor .npy files in subfolders positive and "
                "negative."
            )
    root = source.resolve()
    arrays = []
    for file, _ in files:
        try:
            if root not in file.resolve().parents:
                raise ValueError(f"it leads out of {source}")
            arrays.append(np.load(file, allow_pickle=False))
        except Exception as error:  # so can a damaged array
            raise BadInput(f"{file} could not be read as an array: {_reason(error)}.") from None
    return make_bags(arrays, [mark for _, mark in files])
