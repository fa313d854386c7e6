"""What do the laws of theory/ predict for moments of attention over tokens on the sphere?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.curve import Curve
from attnlimit.errors import NotConverged
from attnlimit.heads import Head
from attnlimit.theory import horizon, mean_covariance, pointwise_error
from attnlimit.theory.moments import covariance_influence
from attnlimit.tokens import Sphere

QUERIES = 1 << 14
POINTS = 1 << 10
TABLE = 24


def sphere_law(head: Head, tokens: Sphere, statistic: str, n: NDArray[np.int64]) -> Curve:
    """Predicted curve of the mean or the covariance of attention over tokens on the sphere.

    Below the horizon 1 by the delta method, from the influence of one token. Past it the delta
    method is carried by tokens too rare to be seen: the covariance then has its bias, exact at
    every n, which is a lower bound and most of its error; the mean has no law here.
    """
    strength = horizon(head, tokens)
    if statistic == "mean":
        if strength >= 1:
            raise NotConverged(f"no law of the mean on the sphere at horizon {strength:.3g}.")
        value, method = np.trace(mean_covariance(head, tokens)) / n, "delta method"
    elif strength < 1:
        influence = covariance_influence(head, tokens, tokens.points(POINTS))
        value, method = (influence**2).sum(axis=(1, 2)).mean() / n, "delta method"
    else:
        value = (_covariance_bias(head, tokens, n) ** 2).sum(axis=(1, 2))
        method = "exact bias"
    return Curve(statistic, n, np.asarray(value), np.zeros(len(n)), method)


def _covariance_bias(head: Head, tokens: Sphere, n: NDArray[np.int64]) -> Array:
    """E S_n - S: (len(n), d_v, d_v).

    Given the query, E Gamma_n Gamma_n' - Gamma Gamma' is V (a ee' + b (I - ee')) V', e the
    direction of A x, with a and b functions of |A x| and n only: tabulated from the exact law.
    """
    tilts = head.tilts(tokens.points(QUERIES))
    sizes = np.linalg.norm(tilts, axis=1)
    directions = tilts / sizes[:, None]
    nodes = np.geomspace(sizes.min(), sizes.max(), TABLE)
    axis = np.zeros((TABLE, tokens.dim))
    axis[:, 0] = nodes
    law = pointwise_error(Head(np.eye(tokens.dim)), tokens, axis, n, covariance=True)
    assert law.covariance is not None
    limit = tokens.tilted_mean(axis)[:, 0]
    along = law.covariance[:, :, 0, 0] + (law.bias[:, :, 0] + limit[:, None]) ** 2
    along = along - limit[:, None] ** 2
    across = law.covariance[:, :, 1, 1]
    result = []
    for k in range(len(n)):
        a = np.interp(np.log(sizes), np.log(nodes), along[:, k])
        b = np.interp(np.log(sizes), np.log(nodes), across[:, k])
        inner = (directions * (a - b)[:, None]).T @ directions / len(tilts)
        result.append(head.V @ (inner + b.mean() * np.eye(tokens.dim)) @ head.V.T)
    return np.stack(result)
