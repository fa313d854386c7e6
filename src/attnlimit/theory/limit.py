"""What infinitely many tokens give: the limit of attention, the horizon of a head, and rates.

A rate is the exponent with which the error falls as n grows without end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput, NoLimitError
from attnlimit.head import Head
from attnlimit.result import Result
from attnlimit.tokens import Tokens


def limit(head: Head, tokens: Tokens) -> Callable[[ArrayLike], Array]:
    """The infinite-token output, as a function of a batch of queries: V grad K(A x).

    Raises NoLimitError, when called, at a query where the tokens' CGF is infinite.

    Examples
    --------
    >>> import numpy as np, attnlimit as al
    >>> al.limit(al.Head(2 * np.eye(2)), al.Gaussian(dim=2))([1.0, 0.5])
    array([2., 1.])
    """
    check_match(head, tokens)

    def infinite_token_output(x: ArrayLike) -> Array:
        return tokens.tilted_mean(head.tilts(x)) @ head.V.T

    return infinite_token_output


def horizon(head: Head, tokens: Tokens) -> float:
    """Horizon H of a head: the rate of the mean is 1/2 below H = 1.

    H = |S^1/2 A S^1/2|_2 for Gaussian tokens of covariance S. A mixture has the H of its widest
    pair of Gaussian parts, max |S_i^1/2 A S_j^1/2|_2: that pair decides the rate. Tokens without a
    Gaussian part have that of their covariance, and a rate of 1/2 whatever it is.

    Examples
    --------
    >>> import numpy as np, attnlimit as al
    >>> al.horizon(al.Head(3 * np.eye(2)), al.Gaussian(dim=2, variance=0.25))
    0.75
    """
    check_match(head, tokens, self_attention=True)
    if tokens.tail.rate == 0:
        raise NoLimitError(
            f"{tokens!r} has no exponential moment, so attention over it has no limit "
            "and no horizon."
        )
    roots = tokens.tail.roots or (tokens.sqrt_cov(),)
    return max(float(np.linalg.norm(k @ head.A @ q, 2)) for k in roots for q in roots)


def check_match(head: Head, tokens: Tokens, self_attention: bool = False) -> None:
    """Raise unless these are a head and tokens of one dimension (queries too, if they attend)."""
    if not isinstance(head, Head):
        raise BadInput(f"head must be an al.Head, got {type(head).__name__}.")
    if not isinstance(tokens, Tokens):
        raise BadInput(
            f"tokens must be a token distribution such as al.Gaussian(dim=3), "
            f"got {type(tokens).__name__}."
        )
    if head.key_dim != tokens.dim:
        raise BadInput(
            f"the head takes keys of dimension {head.key_dim} (the rows of A), "
            f"but the tokens have dimension {tokens.dim}."
        )
    if self_attention and head.query_dim != tokens.dim:
        raise BadInput(
            f"here tokens are the queries too, but the head takes queries of dimension "
            f"{head.query_dim} (the columns of A) and the tokens have {tokens.dim}."
        )


def check_limit(head: Head, tokens: Tokens) -> None:
    """Raise unless every token, as a query, is known to have an infinite-token limit."""
    check_match(head, tokens, self_attention=True)
    if tokens.tail.has_limit or not head.A.any():
        return
    _refuse_unknown(tokens)
    if tokens.tail.rate == 0:
        raise NoLimitError(
            f"{tokens!r} has no exponential moment: attention over more and more tokens has no "
            "limit, and there is no curve and no rate."
        )
    raise NoLimitError(
        f"A share of {tokens!r}, as queries, lies past the bound {tokens.tail.rate:g} on A x, with "
        "no limit and no rate. Use pointwise_error at queries of your own."
    )


def check_ball(head: Head, tokens: Tokens, radius: float) -> None:
    """Raise unless every query |x| <= radius is known to have an infinite-token limit."""
    check_match(head, tokens)
    if tokens.tail.has_limit:
        return
    _refuse_unknown(tokens)
    largest = radius * float(np.linalg.norm(head.A, axis=1).max())
    if largest >= tokens.tail.rate:
        raise NoLimitError(
            f"{tokens!r} has no limit on the whole ball of radius {radius:g}: a coordinate of A x "
            f"reaches {largest:.4g}, past the bound {tokens.tail.rate:g}."
        )


def _refuse_unknown(tokens: Tokens) -> None:
    if tokens.tail.kind == "unknown":
        raise BadInput(
            f"the tail of {tokens!r} is not known, so neither is whether its queries have a limit; "
            "override its `tail`, or ask at queries of your own with pointwise_error."
        )


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
