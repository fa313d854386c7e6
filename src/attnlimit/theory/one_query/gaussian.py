"""Attention over n Gaussian keys: functions of the score deviation sigma and n alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput, NotConverged
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result, table
from attnlimit.theory.one_query.quadrature import (
    CAP,
    EXACT,
    NORMALISATION_TOLERANCE,
    LaplaceTable,
    highest_alpha,
    log_phi,
    tabulate,
)
from attnlimit.tokens.score_law import standard_normal_grid

MAX_SIGMA = 1000.0
_EVEN = EXACT.step / 0.4  # from this sigma on, nodes as far apart as the alphas resolve g


@dataclass(frozen=True, eq=False)
class GaussianLaw(Result, Pictured):
    """Exact law of attention over n standard normal keys, for one query (docs, exact law).

    Gamma_n is the coordinate of the output along the query's direction, whose limit is sigma.
    Across it the output is N(0, participation) in each whitened coordinate.
    """

    sigma: Array  # standard deviation of the query's scores
    n: NDArray[np.int64]
    bias: Array  # E Gamma_n - sigma; equal to -sigma * participation
    mse: Array  # E (Gamma_n - sigma)^2
    participation: Array  # E sum_i p_i^2

    def headline(self) -> str:
        return "attention over n standard normal keys, exact"

    def panel(self) -> Panel:
        """Root mean squared error against n, a line for each sigma."""
        frame = self.to_frame()
        lines = [
            Series(part["n"], np.sqrt(part["mse"]), "line", f"σ = {sigma:g}", f"σ = {sigma:g}")
            for sigma, part in frame.groupby("sigma")
        ]
        return Panel("exact law of one query", "number of tokens n", "error along the query", lines)

    def to_frame(self) -> pd.DataFrame:
        """One row for each (sigma, n)."""
        names = ("sigma", "n", "bias", "mse", "participation")
        return table(**{name: getattr(self, name) for name in names})


def gaussian_law(sigma: ArrayLike, n: ArrayLike) -> GaussianLaw:
    """Bias, error and participation of softmax attention over `n` standard normal keys.

    `sigma` is the standard deviation of the query's scores. Exact for every n >= 2, n = 10**12
    included; both arguments broadcast. One sweep per distinct sigma serves every n.

    Examples
    --------
    >>> import attnlimit as al
    >>> law = al.gaussian_law(sigma=1.0, n=[10, 1000])
    >>> law.mse.round(4), law.participation.round(4)
    (array([0.2974, 0.0053]), array([0.1947, 0.0027]))
    """
    score_std = checks.real_array(sigma, "sigma")
    if (score_std < 0).any() or (score_std > MAX_SIGMA).any():
        raise BadInput(f"sigma must lie between 0 and {MAX_SIGMA:g}, got {sigma!r}.")
    counts = checks.token_counts(n)
    grid_sigma, grid_n = checks.broadcast(sigma=score_std, n=counts)
    bias, mse, participation = (np.empty(grid_sigma.shape) for _ in range(3))
    for s in np.unique(grid_sigma):
        here = grid_sigma == s
        distinct, index = np.unique(grid_n[here], return_inverse=True)
        table = gaussian_table(float(s), distinct)
        for column, by_n in zip(
            (bias, mse, participation), _moments(table, distinct, float(s)), strict=True
        ):
            column[here] = by_n[index]
    return GaussianLaw(grid_sigma, grid_n, bias, mse, participation)


def check_score_std(sigma: float) -> None:
    """Raise where scores of this standard deviation are too sharp for the exact law."""
    if sigma > MAX_SIGMA:
        raise BadInput(
            f"a query's scores have standard deviation {sigma:.3g}, above {MAX_SIGMA:g}: "
            "attention is a hard maximum there, use hardmax_error."
        )


def gaussian_table(sigma: float, n: NDArray[np.int64]) -> LaplaceTable:
    """The table of a standard normal key seen with scores of deviation `sigma`."""
    if sigma >= _EVEN:
        return _even_table(sigma, n)
    g, weight = standard_normal_grid(sigma)
    centred = (g - sigma)[:, None]
    return tabulate(sigma * g, weight / weight.sum(), centred, centred**2, n)


def _even_table(sigma: float, n: NDArray[np.int64]) -> LaplaceTable:
    """The same with scores as far apart as the alphas: w depends on their difference alone.

    So sums over the nodes are correlations with three short kernels, and exponentials are few.
    """
    step = EXACT.step
    g, weight = standard_normal_grid(sigma, step / sigma)
    weight /= weight.sum()
    lead = math.ceil(EXACT.below / step)  # alphas below the lowest score
    many = float(n.max())
    count = lead + math.ceil((highest_alpha(sigma * g, weight, many) - sigma * g[0]) / step)
    deep, high = math.ceil((45 + 2 * math.log(many)) / step), int(CAP / step)
    w = np.exp(step * np.arange(-deep, high + 1))
    pull = w * np.exp(-w)
    reached = count - lead + high  # nodes that some alpha meets
    above = np.append(np.cumsum(weight[::-1])[::-1], 0.0)
    place = np.arange(-lead, count - lead)  # of each alpha among the nodes
    # Keys above alpha have 1 - e^{-w} > 0.63: alphas with many of them have no phi left.
    lost = 0.63 * max(float(n.min()) - 2, 0.0) * above[np.clip(place, 0, len(g))]
    skipped = int((lost > EXACT.depth).sum())

    def correlated(nodes: Array, kernel: Array) -> Array:
        padded = np.zeros(lead + deep + reached)
        padded[lead + deep :][: len(nodes)] = nodes[:reached]
        return np.correlate(padded[skipped:], kernel, "valid")

    certain = above[np.clip(place[skipped:] + high + 1, 0, len(g))]
    centred = g - sigma
    return LaplaceTable(
        log_phi(certain + correlated(weight, -np.expm1(-w))),
        correlated(weight, pull),
        correlated(weight, pull * w),
        correlated(weight * centred, pull)[:, None],
        correlated(weight * centred**2, pull * w)[:, None],
    )


def _moments(table: LaplaceTable, n: NDArray[np.int64], sigma: float) -> tuple[Array, Array, Array]:
    """Bias, error and participation for each n."""
    once, twice = table.meeting(n)
    linear, quadratic = table.linear[:, 0], table.quadratic[:, 0]
    participation = once @ table.square
    # Gaussian integration by parts: E Gamma_n = (1 - participation) sigma. It keeps the digits
    # that the direct integral loses to cancellation, and the direct integral checks it.
    bias = -sigma * participation
    missed = np.abs(once @ linear - bias)
    if not (missed < NORMALISATION_TOLERANCE * max(1.0, sigma)).all():
        raise NotConverged(
            f"the exact law's bias at sigma = {sigma:g}, n = {n[missed.argmax()]} misses "
            "-sigma * participation; use measure there.",
            reached=float(missed.max()),
        )
    return bias, once @ quadratic + twice @ linear**2, participation
