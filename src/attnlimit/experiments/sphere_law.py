"""What does theory predict for moments of attention over tokens on the sphere?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlimit.curve import Curve
from attnlimit.heads import Head
from attnlimit.theory import predict
from attnlimit.tokens import Sphere


def sphere_law(head: Head, tokens: Sphere, statistic: str, n: NDArray[np.int64]) -> Curve:
    """Predicted curve of the mean or the covariance: the two-query law at any scale."""
    return predict(head, tokens, statistic, n)
