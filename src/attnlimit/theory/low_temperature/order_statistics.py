"""What is the largest of n independent draws like, for n up to 10^15?

If F is continuous, E = -n log F(max) is exactly a standard exponential variable. So the mean of
any function of the maximum is one integral against e^-E, with the tail probability 1 - F kept as
its own small number: nothing is lost at n = 10^12 (docs/theory/hardmax.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, ndtri_exp

from attnlimit.checks import Array

_LOG_STEP = 1 / 16
_LOG_RANGE = (-44.0, 4.2)
"""log E: e^-44 is beyond double precision of the integral, exp(-e^4.2) too."""


@dataclass(frozen=True, eq=False)
class MaximumNodes:
    """Quadrature nodes for the position of the maximum of n draws, as probabilities."""

    weight: Array  # sums to one
    log_below: Array  # log F(max)
    above: Array  # 1 - F(max), without cancellation

    def normal(self) -> Array:
        """The maximum itself for standard normal draws."""
        upper = -ndtri_exp(np.log(self.above))
        lower = ndtri_exp(np.minimum(self.log_below, -1e-300))
        return np.where(self.above < 0.5, upper, lower)

    def cap_gap(self, radial_dim: int) -> Array:
        """1 - height for draws uniform on the unit sphere of R^radial_dim, one coordinate kept."""
        half = (radial_dim - 1) / 2
        return 2 * betaincinv(half, half, self.above)


def maximum_nodes(n: int) -> MaximumNodes:
    """Trapezoid rule in log E: analytic and doubly exponentially small at the upper end."""
    log_exponential = np.arange(_LOG_RANGE[0], _LOG_RANGE[1], _LOG_STEP)
    exponential = np.exp(log_exponential)
    weight = _LOG_STEP * np.exp(log_exponential - exponential)
    return MaximumNodes(
        weight=weight / weight.sum(),
        log_below=-exponential / n,
        above=-np.expm1(-exponential / n),
    )
