"""What does a cut cache say of its keys? Which of its slots hold one, and what its score gets.

A cache whose heads keep different keys has no common positions any more. It hands on a rectangle of
slots: first those of the keys that were kept, empty where a head kept fewer than another, then all
keys since the cut. What goes with them travels on the tensor of keys itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

NAME = "attnlimit_slots"


@dataclass(frozen=True, eq=False)
class Slots:
    """The slots of a layer's cut cache."""

    added: Tensor  # (B, H_kv, m) to the scores of each key; -inf where a slot is empty
    fresh: int  # how many of the last slots hold the tokens since the cut


def mark(keys: Tensor, slots: Slots) -> Tensor:
    """Return the keys (B, H_kv, m, d) with what goes with them."""
    setattr(keys, NAME, slots)
    return keys


def slots_of(keys: Tensor) -> Slots | None:
    """What goes with the keys of a cut cache; None for any other keys."""
    found = getattr(keys, NAME, None)
    return found if isinstance(found, Slots) else None
