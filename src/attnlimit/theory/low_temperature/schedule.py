"""Which sharpness is best for each n, and what do schedules like lam = c log n lose against it?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.result import table
from attnlimit.theory.limit import check_match
from attnlimit.theory.low_temperature.cooling import cooling_error, sharpest
from attnlimit.theory.low_temperature.hardmax import RootError, hardmax_error
from attnlimit.tokens import SphericalForm, Tokens

_STEP = 0.35  # in log lam
_DEPTH = 7.0  # how far below the sharpest lam to look, in log lam
SCHEDULES = ("log", "sqrt-log")


@dataclass(frozen=True, eq=False)
class BestTemperature(RootError):
    """The lam that minimises the error at each n; infinite where the hard maximum is best."""

    n: NDArray[np.int64]
    lam: Array
    mse: Array
    hardmax_mse: Array
    limit_error: Array  # the bias left at that lam with infinitely many tokens
    at_edge: NDArray[np.bool_]  # the best lam is the largest that the exact law was asked for

    def headline(self) -> str:
        return "best sharpness of attention for each n"

    def to_frame(self) -> pd.DataFrame:
        """One row for each n."""
        return table(
            n=self.n,
            lam=self.lam,
            root=self.root,
            hardmax_root=np.sqrt(self.hardmax_mse),
            limit_error=self.limit_error,
            local_rate=self.local_rate,
            at_edge=self.at_edge,
        )


@dataclass(frozen=True, eq=False)
class ScheduleError(RootError):
    """Error along lam = constant * log n, or constant * sqrt(log n)."""

    kind: str
    constant: float
    n: NDArray[np.int64]
    lam: Array
    mse: Array

    def headline(self) -> str:
        form = "log n" if self.kind == "log" else "sqrt(log n)"
        return f"schedule lam = {self.constant:.4g} {form}"

    def to_frame(self) -> pd.DataFrame:
        """One row for each n."""
        return table(n=self.n, lam=self.lam, root=self.root, local_rate=self.local_rate)


def best_temperature(head: Head, tokens: Tokens, x: ArrayLike, n: ArrayLike) -> BestTemperature:
    """The scale `lam` of the scores that brings attention over `n` tokens nearest its target.

    One query. A sweep over lam shared by all n brackets each minimum, then Brent's method finds
    it; the hard maximum (lam = infinity) is compared last.
    """
    query, counts = _one_query(head, tokens, x, n)
    hard = hardmax_error(head, tokens, query, counts).mse[0]
    tops = np.array([sharpest(head, tokens, query, int(k)) for k in counts])
    grid, values = _sweep(head, tokens, query, counts, tops)
    lam, mse, limit_error = (np.zeros(len(counts)) for _ in range(3))
    at_edge = np.zeros(len(counts), dtype=bool)
    for i, k in enumerate(counts):
        best = int(np.nanargmin(values[:, i]))
        last = int(np.flatnonzero(np.isfinite(values[:, i]))[-1])
        bracket = (grid[max(best - 1, 0)], grid[min(best + 1, last)])
        found = minimize_scalar(
            lambda v, k=int(k): np.log(_mse(head, tokens, query, float(np.exp(v)), k)),
            bounds=np.log(bracket),
            method="bounded",
            options={"xatol": 1e-4},
        )
        lam[i], mse[i] = np.exp([found.x, found.fun])
        at_edge[i] = best == last
        if hard[i] <= mse[i]:
            lam[i], mse[i], at_edge[i] = np.inf, hard[i], False
        else:
            cooled = cooling_error(head, tokens, query, lam[i], int(k))
            limit_error[i] = cooled.limit_error[0, 0, 0]
    return BestTemperature(counts, lam, mse, hard, limit_error, at_edge)


def schedule_error(
    head: Head,
    tokens: Tokens,
    x: ArrayLike,
    n: ArrayLike,
    *,
    kind: str = "log",
    constant: float | None = None,
) -> ScheduleError:
    """Error of attention at one query along a schedule lam_n = constant * log n or sqrt(log n).

    `kind` is "log" or "sqrt-log".
    Without a `constant` the one that minimises the average log error over `n` is taken.
    """
    checks.one_of(kind, SCHEDULES, "kind")
    query, counts = _one_query(head, tokens, x, n)
    log_n = np.log(counts.astype(np.float64))
    shape = log_n if kind == "log" else np.sqrt(log_n)

    def along(factor: float) -> Array:
        pairs = zip(factor * shape, counts, strict=True)
        return np.array([_mse(head, tokens, query, float(v), int(k)) for v, k in pairs])

    if constant is not None:
        factor = checks.positive(constant, "constant")
    else:
        tops = [sharpest(head, tokens, query, int(k)) for k in counts]
        high = float(np.log((np.array(tops) / shape).min()))
        if isinstance(tokens.form, SphericalForm):
            high += 3.0  # its law stays cheap far into the frozen range
        found = minimize_scalar(
            lambda v: np.log(along(np.exp(v))).mean(),
            bounds=(high - 9, high),
            method="bounded",
            options={"xatol": 1e-3},
        )
        factor = float(np.exp(found.x))
    return ScheduleError(kind, factor, counts, factor * shape, along(factor))


def _one_query(
    head: Head, tokens: Tokens, x: ArrayLike, n: ArrayLike
) -> tuple[Array, NDArray[np.int64]]:
    check_match(head, tokens)
    rows = checks.query_rows(x, head.query_dim)
    if len(rows) > 1:
        raise BadInput(f"x must be a single query, but its shape is {rows.shape}.")
    return rows[0], checks.token_list(n)


def _mse(head: Head, tokens: Tokens, query: Array, lam: float, n: int) -> float:
    return float(cooling_error(head, tokens, query, lam, n).mse[0, 0, 0])


def _sweep(
    head: Head, tokens: Tokens, query: Array, n: NDArray[np.int64], tops: Array
) -> tuple[Array, Array]:
    """Errors on a grid of lam, for the n whose range it is in (NaN else): one sweep serves all."""
    low = np.log(tops) - _DEPTH
    grid = np.exp(np.arange(low.min(), np.log(tops.max()) + _STEP, _STEP))
    values = np.full((len(grid), len(n)), np.nan)
    for i, lam in enumerate(grid):
        here = (np.log(lam) >= low) & (lam <= tops)
        if here.any():
            values[i, here] = cooling_error(head, tokens, query, lam, n[here]).mse[0, 0]
    return grid, values
