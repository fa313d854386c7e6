"""What infinitely many tokens give: the limit of attention, and the horizon of a head."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from attnlimit.checks import Array
from attnlimit.errors import BadInput, NoLimitError
from attnlimit.head import Head
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
