"""Bags of handwritten digits, one digit being the rare signal: real data for the planner."""

from __future__ import annotations

import numpy as np

from attnlimit.errors import BadInput, MissingExtra
from attnlimit.sparse.bags.source import BagSource, Pool


def digit_bags(digit: int = 9, length: int = 10, signals: int = 1, seed: int = 0) -> BagSource:
    """Bags of scikit-learn's 8 x 8 digits: positive bags hold `signals` of one digit.

    Images are split once into a training and a test half, so that no test image is ever seen.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtra(
            "digits need scikit-learn; install it with: pip install scikit-learn"
        ) from None
    if not 0 <= digit <= 9:
        raise BadInput(f"digit must be between 0 and 9, got {digit}.")
    images, marks = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    half = len(images) // 2
    train, test = (
        Pool(images[part][marks[part] == digit], images[part][marks[part] != digit])
        for part in (order[:half], order[half:])
    )
    return BagSource(train, {"unseen images": test}, length, signals)
