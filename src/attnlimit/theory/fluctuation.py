"""How attention fluctuates about its limit for large n: the delta method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from attnlimit.checks import Array
from attnlimit.errors import BadInput, NoLimitError
from attnlimit.head import Head
from attnlimit.result import Result, table
from attnlimit.theory.limit import check_match
from attnlimit.tokens import Tokens

_LARGEST_LOG = 600.0


@dataclass(frozen=True, eq=False)
class Fluctuation(Result):
    """sqrt(n) (Gamma_n - Gamma) tends to N(0, covariance); n (E Gamma_n - Gamma) to bias.

    Both are infinite where the CGF is infinite at twice the tilt, though the limit exists.
    `effective_fraction` times n is the effective number of tokens at the query.
    """

    covariance: Array  # (..., d_v, d_v)
    bias: Array  # (..., d_v)
    effective_fraction: Array  # (...,)

    def headline(self) -> str:
        """What the columns are."""
        return "attention about its limit for large n: variance over n, |bias| over n"

    def to_frame(self) -> pd.DataFrame:
        """One row for each query: trace of the covariance, |bias|, effective share of tokens."""
        variance = np.trace(self.covariance, axis1=-2, axis2=-1)
        size = np.linalg.norm(self.bias, axis=-1)
        share = np.atleast_1d(self.effective_fraction)
        return table(
            query=np.arange(share.size),
            variance=np.ravel(variance),
            bias=np.ravel(size),
            effective_fraction=share.ravel(),
        )


def fluctuation(head: Head, tokens: Tokens, x: ArrayLike) -> Fluctuation:
    """The central limit theorem of attention at each query x.

    C(x) = e^{K(2t) - 2K(t)} V [Hess K(2t) + dd'] V', d = grad K(2t) - grad K(t), t = A x.

    Examples
    --------
    >>> import numpy as np, attnlimit as al
    >>> al.fluctuation(al.Head(np.eye(2)), al.Gaussian(dim=2), [1.0, 0.0]).covariance.round(3)
    array([[5.437, 0.   ],
           [0.   , 2.718]])
    """
    check_match(head, tokens)
    tilts = head.tilts(x)
    tokens.cgf(tilts)  # raises NoLimitError where there is nothing to fluctuate about
    flat = tilts.reshape(-1, head.key_dim)
    parts = [_at(head, tokens, t) for t in flat]
    shape = tilts.shape[:-1]
    size = head.value_dim
    return Fluctuation(
        covariance=np.array([p[0] for p in parts]).reshape(*shape, size, size),
        bias=np.array([p[1] for p in parts]).reshape(*shape, size),
        effective_fraction=np.array([p[2] for p in parts]).reshape(shape),
    )


def _at(head: Head, tokens: Tokens, t: Array) -> tuple[Array, Array, float]:
    size = head.value_dim
    try:
        log_crowding = float(tokens.cgf(2 * t) - 2 * tokens.cgf(t))
    except NoLimitError:
        return np.full((size, size), np.inf), np.full(size, np.inf), 0.0
    if log_crowding > _LARGEST_LOG:
        raise BadInput(
            f"the first-order variance at a query overflows: it is of order e^{log_crowding:.0f}; "
            "give a shorter query or scale the head down."
        )
    crowding = np.exp(log_crowding)
    shift = tokens.tilted_mean(2 * t) - tokens.tilted_mean(t)
    moment = tokens.tilted_cov(2 * t) + np.outer(shift, shift)
    covariance = crowding * (head.V @ moment @ head.V.T)
    return covariance, -crowding * (head.V @ shift), float(np.exp(-log_crowding))
