"""How many bytes of keys and values does a layer move? Query heads that share keys share them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.models.capture.interface import Call
from attnlimit.samplers import Sampler


class Widths(NamedTuple):
    """Numbers in a key and in a value, and bytes of a number."""

    key: int
    value: int
    number: float

    @staticmethod
    def of(call: Call) -> Widths:
        """Those of a layer's cache."""
        return Widths(call.key.shape[-1], call.value.shape[-1], call.key.element_size())

    @property
    def both(self) -> float:
        """Bytes of a key and its value."""
        return (self.key + self.value) * self.number


def moved_bytes(
    samplers: Sequence[Sampler | None], kept: ArrayLike, visible: ArrayLike, widths: Widths
) -> Array:
    """Bytes (G,) that are read for each of G key-value heads of a layer.

    Parameters
    ----------
    samplers : sequence
        Of the query heads, None where one reads all keys. What heads of a group look at to
        choose is read once.
    kept : (G,) array
        Keys that some head of each group keeps, all queries together.
    visible : number or (G,) array
        Keys that the queries see.
    """
    keys = np.asarray(kept, dtype=float)
    key, value, number = widths
    each = [
        (key * number, value * number)
        if sampler is None
        else (sampler.looked(key, number), sampler.fetched(key, value, number))
        for sampler in samplers
    ]
    looked, fetched = np.array(each).reshape(len(keys), -1, 2).max(1).T
    return np.asarray(looked * np.asarray(visible) + fetched * keys)


def kept_by_group(kept: Tensor, groups: int) -> Tensor:
    """Keys (G,) that some head of each group keeps, on average, from chances (H, R, N)."""
    left_out = (1 - kept).unflatten(0, (groups, -1)).prod(1)
    return (1 - left_out).double().sum((1, 2))
