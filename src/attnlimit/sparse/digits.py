"""Bags of handwritten digits, one digit being the rare signal: real data for the planner."""

from __future__ import annotations

import numpy as np

from attnlimit.checks import Array, count
from attnlimit.errors import BadInput, MissingExtra
from attnlimit.sparse.bags import Bags


class DigitBags:
    """Draw bags of scikit-learn's 8 x 8 digits: positive bags hold `signals` of one digit.

    Images are split once into a training and a test half, so that no test image is ever seen.
    """

    def __init__(
        self, digit: int = 9, length: int = 10, signals: int = 1, prior: float = 0.5, seed: int = 0
    ) -> None:
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            raise MissingExtra(
                "digits need scikit-learn; install it with: pip install scikit-learn"
            ) from None
        if not 0 <= digit <= 9:
            raise BadInput(f"digit must be between 0 and 9, got {digit}.")
        self.length, self.signals = count(length, "length"), count(signals, "signals")
        self.prior = prior
        images, marks = load_digits(return_X_y=True)
        order = np.random.default_rng(seed).permutation(len(images))
        half = len(images) // 2
        self._pools: dict[str, tuple[Array, Array]] = {}
        for name, part in (("train", order[:half]), ("test", order[half:])):
            is_signal = marks[part] == digit
            self._pools[name] = (images[part][is_signal], images[part][~is_signal])

    def draw(self, n: int, rng: np.random.Generator, split: str = "train") -> Bags:
        """Draw `n` labelled bags from the images of one half."""
        hits, others = self._pools[split]
        bags, labels = [], np.where(rng.random(n) < self.prior, 1, -1)
        labels[:2] = 1, -1
        for label in labels:
            bag = others[rng.integers(len(others), size=self.length)].copy()
            if label > 0:
                bag[: self.signals] = hits[rng.integers(len(hits), size=self.signals)]
            bags.append(bag)
        return Bags(tuple(bags), labels.astype(np.int64))
