"""Head: a score matrix and a value matrix, and softmax attention over finitely many tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput

BLOCK_ENTRIES = 1 << 22


@dataclass(frozen=True, eq=False, init=False)
class Head:
    """One attention head: the score of query x on key y is <A x, y>, its value V y.

    Parameters
    ----------
    A : (d_key, d_query) array
        Score matrix, any scaling included.
    V : (d_value, d_key) array, optional
        Value matrix; the identity by default.

    Examples
    --------
    >>> import numpy as np, attnlimit as al
    >>> head = al.Head(np.eye(2))
    >>> head([1.0, 0.0], [[1.0, 0.0], [0.0, 1.0]]).round(3)  # one query, two keys
    array([0.731, 0.269])
    """

    A: Array
    V: Array

    def __init__(self, A: ArrayLike, V: ArrayLike | None = None) -> None:
        scores = checks.real_array(A, "A", ndim=2)
        if scores.size == 0:
            raise BadInput(f"A must not be empty, but its shape is {scores.shape}.")
        values = np.eye(len(scores)) if V is None else checks.real_array(V, "V", ndim=2)
        if values.shape[1] != len(scores) or values.size == 0:
            raise BadInput(
                f"V must have one column for each of the {len(scores)} key dimensions "
                f"(the rows of A), but its shape is {values.shape}."
            )
        object.__setattr__(self, "A", scores)
        object.__setattr__(self, "V", values)

    @classmethod
    def from_projections(
        cls, W_q: ArrayLike, W_k: ArrayLike, W_v: ArrayLike, *, scale: float | None = None
    ) -> Head:
        """Build a head from projections of shape (d_k, d): A = scale W_k' W_q, V = W_v.

        `scale` is 1/sqrt(d_k) by default.
        """
        query = checks.real_array(W_q, "W_q", ndim=2)
        key = checks.real_array(W_k, "W_k", ndim=2)
        if query.shape[0] != key.shape[0]:
            raise BadInput(
                f"W_q and W_k must have the same number of rows (d_k), "
                f"got shapes {query.shape} and {key.shape}."
            )
        factor = len(key) ** -0.5 if scale is None else checks.real_number(scale, "scale")
        return cls(factor * key.T @ query, W_v)

    @property
    def query_dim(self) -> int:
        """Dimension of the queries."""
        return self.A.shape[1]

    @property
    def key_dim(self) -> int:
        """Dimension of the keys."""
        return self.A.shape[0]

    @property
    def value_dim(self) -> int:
        """Dimension of the output."""
        return self.V.shape[0]

    def scaled(self, lam: float) -> Head:
        """The same head with its scores multiplied by `lam` (an inverse temperature)."""
        return Head(checks.real_number(lam, "lam") * self.A, self.V)

    def tilts(self, queries: ArrayLike) -> Array:
        """The vectors t = A x, one for each query."""
        x = checks.vectors(queries, self.query_dim, "queries", "the columns of A")
        return np.asarray(x @ self.A.T)

    def __call__(self, queries: ArrayLike, keys: ArrayLike) -> Array:
        """Softmax attention of each query over all keys; safe at any score magnitude."""
        tilts = self.tilts(queries)
        y = checks.real_array(keys, "keys", ndim=2)
        if len(y) == 0:
            raise BadInput("keys are empty; attention needs at least one token.")
        if y.shape[1] != self.key_dim:
            raise BadInput(
                f"keys must have {self.key_dim} columns (the rows of A), "
                f"but their shape is {y.shape}."
            )
        flat = tilts.reshape(-1, self.key_dim)
        means = np.empty_like(flat)
        rows = max(1, BLOCK_ENTRIES // len(y))
        for start in range(0, len(flat), rows):
            means[start : start + rows] = softmax(flat[start : start + rows] @ y.T, axis=1) @ y
        return (means @ self.V.T).reshape(*tilts.shape[:-1], self.value_dim)

    def __repr__(self) -> str:
        norm = np.linalg.norm(self.A, 2)
        return (
            f"Head(query_dim={self.query_dim}, key_dim={self.key_dim}, "
            f"value_dim={self.value_dim}, |A|={norm:.4g})"
        )
