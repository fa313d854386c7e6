"""First and second moments of attention over n Gaussian keys, for many queries at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from attnlimit.checks import Array
from attnlimit.theory.law.gaussian import gaussian_law

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
    def at(n: NDArray[np.int64], largest_sigma: float, offset: Array) -> tuple[OutputMoments, ...]:
        """Moments for each n, for queries whose score deviation is up to `largest_sigma`."""
        knots = np.linspace(largest_sigma / 64, largest_sigma, _KNOTS)
        law = gaussian_law(knots[:, None], n)
        square = law.mse + 2 * knots[:, None] * law.bias + knots[:, None] ** 2
        factor = (square - law.participation) / knots[:, None] ** 2
        return tuple(
            OutputMoments(offset, CubicSpline(knots, f), CubicSpline(knots, p))
            for f, p in zip(factor.T, law.participation.T, strict=True)
        )

    def coefficients(self, tilts: Array) -> tuple[Array, Array]:
        """f and p for each query."""
        sigma = np.clip(np.linalg.norm(tilts, axis=1), *self.factor.x[[0, -1]])
        return self.factor(sigma), self.participation(sigma)

    def participation_at(self, sigma: Array) -> Array:
        """p for queries given by the deviation of their scores."""
        return np.asarray(self.participation(np.clip(sigma, *self.factor.x[[0, -1]])))

    def mean(self, tilts: Array) -> Array:
        """E Gamma_n for each query, (m, d): its tilt, shrunk by the participation."""
        return tilts * (1 - self.coefficients(tilts)[1])[:, None]

    def inner(self, tilts: Array, values: Array, matrices: Array) -> Array:
        """<values M values', matrix> for each query's own M and matrix (m, d_v, d_v)."""
        f, p = self.coefficients(tilts)
        b, o = tilts @ values.T, values @ self.offset
        turned = (matrices @ b[:, :, None])[..., 0]
        found = f * (turned * b).sum(axis=1) - 2 * (1 - p) * (turned @ o)
        found += p * (matrices * (values @ values.T)).sum(axis=(1, 2))
        return found + (matrices @ o) @ o

    def average(self, tilts: Array) -> Array:
        """The average of `each`, without holding them all."""
        f, p = self.coefficients(tilts)
        return self._average(tilts, f, p, p - 1) + np.outer(self.offset, self.offset)

    def average_shift(self, tilts: Array) -> Array:
        """The average less that of the limit's outer product (b - o)(b - o)'."""
        f, p = self.coefficients(tilts)
        return self._average(tilts, f - 1, p, p)

    def shift_error(self, tilts: Array) -> float:
        """Relative standard error of `average_shift`, by what queries add along their tilts."""
        along = (self.coefficients(tilts)[0] - 1) * (tilts**2).sum(axis=1)
        size = max(float(np.abs(along).mean()), 1e-300)
        return float(along.std()) / size / float(np.sqrt(len(tilts)))

    def _average(self, tilts: Array, along: Array, across: Array, mixed: Array) -> Array:
        """Average of along bb' + across I + mixed (bo' + ob')."""
        cross = np.outer(mixed @ tilts / len(tilts), self.offset)
        moment = (along * tilts.T) @ tilts / len(tilts) + across.mean() * np.eye(tilts.shape[1])
        return moment + cross + cross.T
