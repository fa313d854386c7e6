"""What the two-query law gives: the error of the mean output at each n, and its own error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array


@dataclass(frozen=True, eq=False)
class MeanError:
    """E|m_n - m|^2 for each n, and the numerical error of the average over queries."""

    n: NDArray[np.int64]
    mse: Array
    numerical_error: Array
    own_share: Array  # the part of it that single queries carry, (1/n) E|Gamma_n - m|^2
    own_error: Array  # the numerical error of that

    def at(self, rows: slice) -> MeanError:
        """The same for some of the n."""
        parts = (self.mse, self.numerical_error, self.own_share, self.own_error)
        return MeanError(self.n[rows], *(part[rows] for part in parts))


def combine(
    n: NDArray[np.int64], own: Array, own_error: Array, pair: Array, pair_error: Array
) -> MeanError:
    """(1/n) own + (1 - 1/n) pair, with its error."""
    error = np.hypot(own_error / n, (1 - 1 / n) * pair_error)
    return MeanError(n, own / n + (1 - 1 / n) * pair, error, own / n, own_error / n)


def average_errors(found: list[MeanError]) -> MeanError:
    """Average over stand-ins of one measure; how they differ counts as numerical error."""
    mse = np.array([f.mse for f in found])
    inner = np.linalg.norm([f.numerical_error for f in found], axis=0) / len(found)
    own_share, own_error = np.mean([(f.own_share, f.own_error) for f in found], axis=0)
    error = np.hypot(inner, mse.std(axis=0))
    return MeanError(found[0].n, mse.mean(axis=0), error, own_share, own_error)
