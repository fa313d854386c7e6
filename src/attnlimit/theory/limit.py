"""What infinitely many tokens give: the limit of attention, and the horizon of a head."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.tokens import Gaussian, Tokens


def limit(head: Head, tokens: Tokens) -> Callable[[ArrayLike], Array]:
    """The infinite-token output, as a function of a batch of queries: V grad K(A x).

    Raises NoLimitError, when called, at a query where the tokens' CGF is infinite.
    """
    check_match(head, tokens)

    def infinite_token_output(x: ArrayLike) -> Array:
        return tokens.tilted_mean(head.tilts(x)) @ head.V.T

    return infinite_token_output


def horizon(head: Head, tokens: Tokens) -> float:
    """H = |S^1/2 A S^1/2|_2, S the tokens' covariance; the mean's rate is 1/2 below H = 1."""
    check_match(head, tokens, self_attention=True)
    root = sqrt_covariance(tokens)
    return float(np.linalg.norm(root @ head.A @ root, 2))


def sqrt_covariance(tokens: Tokens) -> Array:
    """Symmetric square root of the tokens' covariance."""
    if isinstance(tokens, Gaussian):
        return tokens.sqrt_cov()
    eigenvalues, eigenvectors = np.linalg.eigh(tokens.cov())
    return (eigenvectors * np.sqrt(np.maximum(eigenvalues, 0))) @ eigenvectors.T


def check_match(head: Head, tokens: Tokens, self_attention: bool = False) -> None:
    """Raise unless the head's keys (and queries, for self-attention) live where tokens do."""
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
