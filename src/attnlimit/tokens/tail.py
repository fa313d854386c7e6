"""How far do tokens stray? What decides whether limits, rates and uniform bounds exist."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from attnlimit.checks import Array

Kind = Literal["bounded", "sub-Gaussian", "exponential", "unknown"]
_HEAVIER = ("bounded", "sub-Gaussian", "exponential", "unknown")


@dataclass(frozen=True, eq=False)
class Tail:
    """What is known about a measure's tail.

    "sub-Gaussian": each Gaussian part is something bounded plus S^1/2 times a normal vector, with
    S^1/2 one of `roots`. "exponential": the CGF is infinite where a coordinate of t reaches `rate`,
    which is zero for tails that are heavier still.
    """

    kind: Kind
    roots: tuple[Array, ...] = ()
    rate: float = np.inf

    @property
    def has_limit(self) -> bool:
        """Whether the CGF is known to be finite everywhere."""
        return self.kind in ("bounded", "sub-Gaussian")


BOUNDED = Tail("bounded")
UNKNOWN = Tail("unknown")


def heaviest(tails: Iterable[Tail]) -> Tail:
    """The tail of a mixture: as heavy as its heaviest component's."""
    parts = tuple(tails)
    return Tail(
        max((part.kind for part in parts), key=_HEAVIER.index),
        tuple(root for part in parts for root in part.roots),
        min(part.rate for part in parts),
    )
