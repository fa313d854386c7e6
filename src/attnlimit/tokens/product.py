"""What tokens with independent coordinates of one law share.

Each law gives its coordinate's CGF and two derivatives, for complex arguments too: that is what
the exact law of their scores needs (docs/theory/exact-law.md, independent coordinates).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.tokens.base import Tokens
from attnlimit.tokens.form import IndependentForm, Numbers


class Product(Tokens):
    """Independent, identically distributed, symmetric coordinates."""

    edge: Literal["flat", "atom"] | None = None
    coordinate_reach: float  # largest |coordinate| that matters: the edge, or where tails are spent
    symmetric = True

    def __init__(self, dim: int) -> None:
        self.dim = checks.count(dim, "dim")

    @abstractmethod
    def coordinate_cgf(self, u: Numbers) -> Numbers:
        """CGF of one coordinate at u, real or complex with a non-zero real part."""

    @abstractmethod
    def coordinate_mean(self, u: Numbers) -> Numbers:
        """First derivative of `coordinate_cgf`."""

    @abstractmethod
    def coordinate_var(self, u: Numbers) -> Numbers:
        """Second derivative of `coordinate_cgf`."""

    def cgf(self, t: ArrayLike) -> Array:
        return np.asarray(self.coordinate_cgf(self._tilt(t)).sum(axis=-1))

    def tilted_mean(self, t: ArrayLike) -> Array:
        return np.asarray(self.coordinate_mean(self._tilt(t)))

    def tilted_cov(self, t: ArrayLike) -> Array:
        return np.real(self.coordinate_var(self._tilt(t)))[..., None] * np.eye(self.dim)

    @property
    def form(self) -> IndependentForm:
        return IndependentForm(
            self.coordinate_cgf,
            self.coordinate_mean,
            self.coordinate_var,
            self.coordinate_reach,
            self.edge,
        )

    def _upper(self, u: Numbers) -> Numbers:
        """u in units of 1/reach, reflected to a non-negative real part (the law is symmetric)."""
        v = self.coordinate_reach * u
        return np.where(np.real(v) < 0, -v, v)
