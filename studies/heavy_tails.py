"""Attention over tokens with no infinite-token limit: the largest score takes everything.

Draws the expected participation of the weights, E sum p^2, against n for four token measures
at one query: it falls with n where the limit exists, and stays of order one where it does not.

    python studies/heavy_tails.py
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import stdtrit

import attnlimit as al
from attnlimit.tokens import Tail
from tables import write_tables


class Student(al.Tokens):
    """Tokens with independent Student coordinates: E exp<t, y> is infinite for every t but 0."""

    def __init__(self, dim: int, freedom: float) -> None:
        self.dim, self.freedom = dim, freedom

    def cov(self) -> np.ndarray:
        return self.freedom / (self.freedom - 2) * np.eye(self.dim)

    def cgf(self, t: ArrayLike) -> np.ndarray:
        if np.any(t):
            raise al.NoLimitError(
                f"Student tokens with {self.freedom:g} degrees of freedom have no infinite-token "
                "limit: E exp<t, y> is infinite for every t but 0."
            )
        return np.zeros(np.shape(t)[:-1])

    def tilted_mean(self, t: ArrayLike) -> np.ndarray:
        self.cgf(t)
        return np.zeros(np.shape(t))

    def tilted_cov(self, t: ArrayLike) -> np.ndarray:
        self.cgf(t)
        return np.broadcast_to(self.cov(), (*np.shape(t)[:-1], self.dim, self.dim))

    def extreme(self, u: ArrayLike) -> np.ndarray:
        raise al.UnboundedSupport("Student tokens have no furthest point.")

    def transport(self, uniforms: np.ndarray) -> np.ndarray:
        return stdtrit(self.freedom, uniforms)

    @property
    def tail(self) -> Tail:
        return Tail("exponential", rate=0.0)


def participation(
    tokens: al.Tokens, scale: float, n: int, replicates: int, seed: int
) -> tuple[float, float]:
    """Mean of sum p^2 over `n` keys whose scores are scale * y_1, and its standard error."""
    rng = np.random.default_rng(seed)
    drawn = np.empty(replicates)
    for i in range(replicates):
        scores = scale * tokens.sample(n, rng)[:, 0]
        weights = np.exp(scores - scores.max())
        drawn[i] = (weights**2).sum() / weights.sum() ** 2
    return float(drawn.mean()), float(drawn.std(ddof=1) / np.sqrt(replicates))


SIZES = 2 ** np.arange(4, 18, 2)
DRAWS = 200
CASES = (
    ("Gaussian, scores of deviation 1", al.Gaussian(dim=1), 1.0),
    ("Laplace well below its bound, t = 1/(5b)", al.Laplace(1), 0.2),
    ("Laplace past its bound, t = 2/b", al.Laplace(1), 2.0),
    ("Student, 3 degrees of freedom", Student(1, 3.0), 1 / np.sqrt(3)),
)


def exact(tokens: al.Tokens, scale: float) -> np.ndarray:
    """The same by the exact law, where there is a limit."""
    try:
        return al.pointwise_error(al.Head([[scale]]), tokens, [1.0], SIZES).participation[0]
    except al.NoLimitError:
        return np.full(len(SIZES), np.nan)


if __name__ == "__main__":
    parts = []
    for name, tokens, scale in CASES:
        drawn = [participation(tokens, scale, n, DRAWS, seed=n) for n in SIZES.tolist()]
        mean, stderr = np.array(drawn).T
        columns = {"tokens": name, "n": SIZES, "draws": DRAWS, "measured": mean, "stderr": stderr}
        parts.append(pd.DataFrame(columns | {"exact": exact(tokens, scale)}))
    table = pd.concat(parts)
    write_tables({"participation-without-limit": table})
