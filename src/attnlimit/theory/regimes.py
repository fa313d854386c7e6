"""Fractions of a head's queries in each regime: Gaussian fluctuations, stable ones, or frozen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result, table
from attnlimit.theory.limit import check_match
from attnlimit.tokens import Tokens

_SCRAMBLES = 8
_POINTS = 1 << 12


@dataclass(frozen=True, eq=False)
class Regimes(Result, Pictured):
    """Fractions of queries x ~ tokens by the standard deviation sigma of their scores.

    gaussian: sigma < sqrt(2 log n)/2; frozen: sigma > sqrt(2 log n), a handful of keys take all
    the weight; stable in between. `error` is the numerical error of the fractions.
    """

    n: NDArray[np.int64]
    gaussian: Array
    stable: Array
    frozen: Array
    threshold: Array  # sqrt(2 log n)
    typical_sigma: float  # root mean square of sigma over queries
    error: float
    method: str

    def headline(self) -> str:
        return (
            f"regimes of queries, typical score deviation {self.typical_sigma:.4g} "
            f"({self.method}, error {self.error:.1g})"
        )

    def panel(self) -> Panel:
        """Fractions of queries in each regime against n."""
        lines = [
            Series(self.n, getattr(self, name), style, name, name)
            for name, style in (("gaussian", "line"), ("stable", "dashed"), ("frozen", "dotted"))
        ]
        return Panel("regimes", "number of tokens n", "fraction of queries", lines, "log", "linear")

    def to_frame(self) -> pd.DataFrame:
        """One row for each n."""
        names = ("n", "gaussian", "stable", "frozen", "threshold")
        return table(**{name: getattr(self, name) for name in names})


def regimes(head: Head, tokens: Tokens, n: ArrayLike) -> Regimes:
    """Classify queries drawn from `tokens` by their score deviation, at each number of keys `n`.

    Finitely many tokens are counted; others are represented by quasi-random queries, whose scatter
    is the error. The thresholds are those of Gaussian scores (the random energy model).

    Examples
    --------
    >>> import numpy as np, attnlimit as al
    >>> regimes = al.regimes(al.Head(3 * np.eye(2)), al.Gaussian(dim=2), [100, 10**6])
    >>> regimes.frozen.round(2)
    array([0.6 , 0.22])
    """
    check_match(head, tokens, self_attention=True)
    counts = checks.token_list(n)
    threshold = np.sqrt(2 * np.log(counts.astype(np.float64)))
    root = tokens.sqrt_cov() @ head.A
    edges = np.concatenate([threshold / 2, threshold])
    atoms = tokens.atoms()
    if atoms is not None:
        sigma = np.linalg.norm(atoms[0] @ root.T, axis=1)
        below, error = (sigma[:, None] < edges).T @ atoms[1], 0.0
        method = "all tokens"
    else:
        below, error = _quasi_random(root, tokens, edges)
        method = "quasi-random queries"
    narrow, wide = below[: len(counts)], below[len(counts) :]
    second_moment = tokens.cov() + np.outer(tokens.mean(), tokens.mean())
    return Regimes(
        n=counts,
        gaussian=narrow,
        stable=np.maximum(wide - narrow, 0.0),
        frozen=1 - wide,
        threshold=threshold,
        typical_sigma=float(np.sqrt(np.trace(root @ second_moment @ root.T))),
        error=error,
        method=method,
    )


def _quasi_random(root: Array, tokens: Tokens, edges: Array) -> tuple[Array, float]:
    rows = []
    for seed in range(_SCRAMBLES):
        sigma = np.linalg.norm(tokens.points(_POINTS, seed=seed) @ root.T, axis=1)
        rows.append((sigma[:, None] < edges).mean(axis=0))
    scatter = np.std(rows, axis=0, ddof=1) / np.sqrt(_SCRAMBLES)
    return np.mean(rows, axis=0), float(scatter.max())
