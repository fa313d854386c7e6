"""How fast the error falls as n grows without end: exponents, and what decides them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from attnlimit import checks
from attnlimit.errors import NoLimitError
from attnlimit.head import Head
from attnlimit.theory.limit import check_match, horizon, sqrt_covariance
from attnlimit.tokens import Gaussian, Laplace, Mixture, Tokens

STATISTICS = ("mean", "covariance", "pointwise")


@dataclass(frozen=True)
class Rate:
    """Asymptotic exponent of an error: the root error falls like n^-beta.

    `beta` is that of the expected norm for "mean" and "covariance", as the paper plots it, and of
    the root mean square over queries for "pointwise". `rms_beta` is the exponent of the root mean
    square, which past the horizon 1 is carried by rare draws; `typical_beta` that of a typical
    draw. Exponents say what happens in the end: `predict` says what happens at n.
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
            f"{self.statistic}: root error ~ n^-{self.beta:.4g} in the end ({self.regime}, "
            f"horizon {self.horizon:.4g}; root mean square n^-{self.rms_beta:.4g})"
        )


def rate(head: Head, tokens: Tokens, statistic: str) -> Rate:
    """The asymptotic exponent of a statistic.

    Bounded tokens always reach 1/2. Gaussian ones, and mixtures by their widest pair of
    components, have beta = 1/2 below the horizon H = 1 and 1/(1 + H^2) beyond it; pointwise the
    change is at H^2 = 1/2.
    """
    check_match(head, tokens, self_attention=True)
    checks.one_of(statistic, STATISTICS, "statistic")
    if isinstance(tokens, Laplace) and np.any(head.A):
        raise NoLimitError(
            "Laplace tokens as queries reach every score, so a positive share of them lies past "
            "the bound 1/scale where there is no limit: no rate exists."
        )
    width = _effective_horizon(head, tokens)
    if width is None:
        return Rate(statistic, 0.5, 0.5, 0.5, horizon(head, tokens), "parametric: bounded tokens")
    square = width**2
    if statistic == "pointwise":
        if square <= 0.5:
            return Rate(statistic, 0.5, 0.5, 0.5, width, "parametric: horizon below 1/sqrt(2)")
        beta = (np.sqrt(0.25 + 1 / square) - 0.5) / 2
        typical = 1 / (1 + 2 * square)
        return Rate(statistic, beta, beta, typical, width, "slow: rare queries are frozen")
    if square < 1:
        return Rate(statistic, 0.5, 0.5, 0.5, width, "parametric: horizon below 1")
    beta = 1 / (1 + square)
    return Rate(statistic, beta, 1 / (2 * square), beta, width, "heavy-tailed: horizon 1 or more")


def _effective_horizon(head: Head, tokens: Tokens) -> float | None:
    """The horizon that decides the tail; None if the tokens are bounded."""
    if isinstance(tokens, Gaussian):
        return horizon(head, tokens)
    if isinstance(tokens, Mixture):
        present = [c for w, c in zip(tokens.weights, tokens.components, strict=True) if w > 0]
        wide = [sqrt_covariance(c) for c in present if isinstance(c, Gaussian)]
        if wide:
            return max(float(np.linalg.norm(k @ head.A @ q, 2)) for k in wide for q in wide)
    return None
