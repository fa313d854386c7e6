"""Which measures have laws of their own? The forms that a measure can say it has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.inexact]


@dataclass(frozen=True)
class GaussianForm:
    """Normal tokens: their mean and covariance say the rest."""


@dataclass(frozen=True)
class SphericalForm:
    """Uniform on the sphere of `radius` in R^radial_dim, of which d coordinates are kept.

    With radial_dim = d the sphere itself, with d + 2 the ball.
    """

    radius: float
    radial_dim: int


@dataclass(frozen=True, eq=False)
class IndependentForm:
    """Independent coordinates of one symmetric law, which is that of these functions.

    `cgf`, `mean` and `var` are a coordinate's CGF and its derivatives, for complex arguments with a
    non-zero real part too. `reach` is the largest |coordinate| that matters. `edge` says how the
    law ends there, if it is one of two: "flat" (uniform in between) or "atom" (two points).
    """

    cgf: Callable[[Numbers], Numbers]
    mean: Callable[[Numbers], Numbers]
    var: Callable[[Numbers], Numbers]
    reach: float
    edge: Literal["flat", "atom"] | None = None


Form = GaussianForm | SphericalForm | IndependentForm
