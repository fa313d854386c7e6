"""How fast the error falls as n grows without end: exponents, and what decides them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.result import Result
from attnlimit.theory.limit import check_limit, horizon
from attnlimit.tokens import Tokens

STATISTICS = ("mean", "covariance", "pointwise")


@dataclass(frozen=True)
class Rate(Result):
    """Asymptotic exponent of an error: the root error falls like n^-beta.

    `beta` is that of the expected norm for "mean" and "covariance", as the paper plots it, and of
    the root mean square over queries for "pointwise". `rms_beta` is the exponent of the root mean
    square, which past the horizon 1 is carried by rare draws; `typical_beta` that of a typical
    draw. Exponents are those of n to infinity; `predict` has the local rate at each n.
    """

    statistic: str
    beta: float
    rms_beta: float
    typical_beta: float
    horizon: float
    regime: str

    def to_frame(self) -> pd.DataFrame:
        """One row."""
        return pd.DataFrame([vars(self)])

    def __str__(self) -> str:
        return (
            f"{self.statistic}: asymptotic rate of the root error n^-{self.beta:.4g} "
            f"({self.regime}, horizon {self.horizon:.4g}; root mean square n^-{self.rms_beta:.4g})"
        )


def rate(head: Head, tokens: Tokens, statistic: str) -> Rate:
    """The asymptotic exponent of a statistic.

    Bounded tokens always reach 1/2. Sub-Gaussian ones, by their widest pair of Gaussian parts,
    have beta = 1/2 below the horizon H = 1 and 1/(1 + H^2) beyond it; pointwise the change is at
    H^2 = 1/2. Where tails are heavier, or not known, there is no rate and the error says why.

    Examples
    --------
    >>> import attnlimit as al
    >>> al.rate(al.Head([[1.5]]), al.Gaussian(dim=1), "mean").beta
    0.3076923076923077
    """
    check_limit(head, tokens)
    checks.one_of(statistic, STATISTICS, "statistic")
    width = horizon(head, tokens)
    if not tokens.tail.roots:
        return Rate(statistic, 0.5, 0.5, 0.5, width, _bounded_regime(head, tokens))
    square = width**2
    if statistic == "pointwise":
        if square <= 0.5:
            return Rate(statistic, 0.5, 0.5, 0.5, width, "parametric: horizon below 1/sqrt(2)")
        beta = (np.sqrt(0.25 + 1 / square) - 0.5) / 2
        typical = 1 / (1 + 2 * square)
        return Rate(statistic, beta, beta, typical, width, "slow: few keys rule rare queries")
    if square < 1:
        return Rate(statistic, 0.5, 0.5, 0.5, width, "parametric: horizon below 1")
    beta, rms = (float(exponent(np.asarray(width))) for exponent in (norm_rate, rms_rate))
    return Rate(statistic, beta, rms, beta, width, "heavy-tailed: horizon 1 or more")


def _bounded_regime(head: Head, tokens: Tokens) -> str:
    atoms = tokens.atoms()
    if atoms is not None:
        return f"parametric: draws with replacement from {len(atoms[0])} given tokens"
    return "parametric: bounded tokens" if head.A.any() else "parametric: plain averages"


def norm_rate(horizon: Array) -> Array:
    """Asymptotic rate of the expected norm of the mean's error, over Gaussian tokens."""
    return np.asarray(1 / (1 + np.maximum(horizon, 1.0) ** 2))


def rms_rate(horizon: Array) -> Array:
    """Rate of its root mean square, which rare draws carry past the horizon 1."""
    return np.asarray((np.sqrt(0.25 + 2 / np.maximum(horizon, 1.0) ** 2) - 0.5) / 2)
