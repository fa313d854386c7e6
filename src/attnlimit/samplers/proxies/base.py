"""What may stand in for a key while keys are chosen? Something smaller that gives its score, about.

Chances from a proxy are chances like any others: weights are divided by them and keys that are kept
have their true score, so a poor proxy costs keys and variance, never truth.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor


class Proxy(ABC):
    """Approximates the products of queries and keys. A new proxy says how, and what it reads."""

    @property
    def name(self) -> str:
        """A few words for tables and pages."""
        return repr(self)

    @abstractmethod
    def products(self, query: Tensor, key: Tensor) -> Tensor:
        """About <q, k>, (..., R, N), for queries (..., R, d) and keys (..., N, d).

        A number added to all products of one query changes nothing.
        """

    @abstractmethod
    def bytes(self, width: int, number: float) -> float:
        """Bytes that are read for each visible key of `width` numbers of `number` bytes."""
