"""What does one rare token do? Known exactly, it takes the tail out of a squared error.

Where tails are heavy a squared error is large because of one token: others are then as expected.
The sum over tokens of what each would do alone has a known mean, and subtracting it leaves draws
that are hardly skewed. Its weight is 1, as for rare tokens it must be, so nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnlimit.checks import Array
from attnlimit.tokens.score_law import resolved_panels

REACH = 60
"""Coordinates beyond which exponential tails of scale 1 are spent."""


@dataclass(frozen=True)
class LoneToken:
    """Squared error of attention at the query t, over tokens of one coordinate, from one alone.

    With n - 1 tokens as expected, whose weights sum to (n - 1) e^K, a token y moves the output
    from its limit m by e^{ty} (y - m) / ((n - 1) e^K + e^{ty}).
    """

    tilt: float
    mass: float  # e^K
    limit: float

    def square(self, tokens: Array, n: int) -> Array:
        """What each token does among n."""
        weight = np.exp(self.tilt * tokens)
        return np.asarray((weight * (tokens - self.limit) / ((n - 1) * self.mass + weight)) ** 2)

    def excess(self, tokens: Array, sizes: Sequence[int], means: Array) -> Array:
        """What the first n tokens do, less its mean, at each n."""
        sums = [self.square(tokens[:n], n).sum() for n in sizes]
        return np.asarray(sums) - means

    def laplace_means(self, sizes: Sequence[int]) -> Array:
        """The mean over n Laplace tokens of scale 1, by quadrature, at each n."""
        nodes, weights = resolved_panels(np.arange(-REACH, REACH + 1.0))
        weights = weights * np.exp(-np.abs(nodes)) / 2
        return np.array([n * (weights @ self.square(nodes, n)) for n in sizes])
