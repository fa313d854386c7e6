"""First and second moments of attention over n Gaussian keys, for many queries at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import CubicSpline

from attnlimit.checks import Array
from attnlimit.theory.gaussian_law import gaussian_law

_KNOTS = 32


@dataclass(frozen=True, eq=False)
class OutputMoments:
    """E[(Gamma_n - o)(Gamma_n - o)' | tilt b] = f bb' + p I - (1-p)(bo' + ob') + oo', o = offset.

    f = (E[g^2] - p) / sigma^2 and the participation p are splines in sigma = |b|.
    """

    offset: Array
    factor: CubicSpline
    participation: CubicSpline

    @staticmethod
    def at(n: int, largest_sigma: float, offset: Array) -> OutputMoments:
        """Moments over n keys for queries whose score deviation is up to `largest_sigma`."""
        knots = np.linspace(largest_sigma / 64, largest_sigma, _KNOTS)
        law = gaussian_law(knots, n)
        square = law.mse + 2 * knots * law.bias + knots**2
        factor = CubicSpline(knots, (square - law.participation) / knots**2)
        return OutputMoments(offset, factor, CubicSpline(knots, law.participation))

    def coefficients(self, tilts: Array) -> tuple[Array, Array]:
        """f and p for each query."""
        knots = self.factor.x
        sigma = np.clip(np.linalg.norm(tilts, axis=1), knots[0], knots[-1])
        return self.factor(sigma), self.participation(sigma)

    def mean(self, tilts: Array) -> Array:
        """E Gamma_n for each query, (m, d): its tilt, shrunk by the participation."""
        return tilts * (1 - self.coefficients(tilts)[1])[:, None]

    def each(self, tilts: Array) -> Array:
        """The matrix for each query, (m, d, d)."""
        f, p = self.coefficients(tilts)
        mixed = (1 - p)[:, None, None] * tilts[:, :, None] * self.offset
        moment = f[:, None, None] * tilts[:, :, None] * tilts[:, None, :]
        moment += p[:, None, None] * np.eye(len(self.offset))
        return moment - mixed - np.swapaxes(mixed, 1, 2) + np.outer(self.offset, self.offset)

    def average(self, tilts: Array) -> Array:
        """The average of `each`, without holding them all."""
        f, p = self.coefficients(tilts)
        mixed = np.outer((1 - p) @ tilts / len(tilts), self.offset)
        moment = (f * tilts.T) @ tilts / len(tilts) + p.mean() * np.eye(len(self.offset))
        return moment - mixed - mixed.T + np.outer(self.offset, self.offset)

    def average_shift(self, tilts: Array) -> Array:
        """The average less that of the limit's outer product (b - o)(b - o)'."""
        f, p = self.coefficients(tilts)
        mixed = np.outer(p @ tilts / len(tilts), self.offset)
        return (
            ((f - 1) * tilts.T) @ tilts / len(tilts)
            + np.diag(np.full(len(self.offset), p.mean()))
            + mixed
            + mixed.T
        )
