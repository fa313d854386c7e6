"""Uniform convergence: a bound on the error of attention at the worst query of a ball.

The query of a ball whose output fluctuates most for large n.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import NoLimitError
from attnlimit.head import Head
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result, table
from attnlimit.theory.limit import check_match
from attnlimit.theory.uniform.envelope import Envelope, envelope
from attnlimit.tokens import Tokens

_DIRECTION_GAPS = (0.5, 0.35, 0.25, 0.15, 0.1, 0.05)
_LEVEL_FACTORS = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 9.0)
_NET_STEPS = 2.0 ** -np.arange(0, 48)
_BISECTIONS = 60
_HOPELESS = 300.0  # no n below 10^15 helps against weights of e^300


@dataclass(frozen=True, eq=False)
class UniformBound(Result, Pictured):
    """sup over |x| <= R of |Gamma_n(x) - Gamma(x)| is at most `bound`, with probability 1 - delta.

    `trivial` marks the n that are too small for the method: there the bound is only the size of
    the outputs. As n grows sqrt(n) sup |Gamma_n - Gamma| is of order `constant`, C(R).
    """

    n: NDArray[np.int64]
    bound: Array
    radius: float
    delta: float
    method: str  # "compact" or "sub-Gaussian"
    constant: float  # C(R) = sup sqrt(tr C(x))
    worst: Array  # the query where C(R) is reached
    growth: float  # d log C(R) / dR
    bound_constant: float  # sqrt(Q) kappa: the bound's own version of C(R), per output direction
    bound_growth: float  # d log bound_constant / dR
    score_bound: Array  # s: largest |<A x, y - mean>| allowed for, at each n
    value_bound: Array  # v: largest |V (y - mean)| allowed for
    lipschitz: Array  # of Gamma_n - Gamma in x
    net_step: Array  # epsilon of the net of queries
    log_query_net: Array  # log of its size
    direction_gap: Array  # gamma of the net of output directions
    log_direction_net: Array
    trivial: NDArray[np.bool_]

    @property
    def ratio(self) -> Array:
        """The bound over C(R)/sqrt(n): what the proof costs; NaN where C(R) is 0 or overflows."""
        if not 0 < self.constant < np.inf:
            return np.full(len(self.n), np.nan)
        return self.bound * np.sqrt(self.n) / self.constant

    def headline(self) -> str:
        return (
            f"uniform bound on |x| <= {self.radius:g} with probability {1 - self.delta:g} "
            f"({self.method} tokens)\n"
            f"asymptotic constant C(R) = {self.constant:.5g}, d log C / dR = {self.growth:.4g}"
        )

    def panel(self) -> Panel:
        """The bound against n, and C(R)/sqrt n, the order that it cannot beat."""
        title = f"largest error over |x| <= {self.radius:g}"
        series = [
            Series(self.n, self.bound, "line", f"bound, probability {1 - self.delta:g}", "bound"),
            Series(self.n, self.constant / np.sqrt(self.n), "dashed", "C(R)/√n", "order"),
        ]
        return Panel(title, "number of tokens n", "largest error", series)

    def to_frame(self) -> pd.DataFrame:
        """One row for each n."""
        return table(
            n=self.n,
            bound=self.bound,
            asymptotic=self.constant / np.sqrt(self.n),
            ratio=self.ratio,
            score_bound=self.score_bound,
            value_bound=self.value_bound,
            net_step=self.net_step,
            log_query_net=self.log_query_net,
            log_direction_net=self.log_direction_net,
            trivial=self.trivial,
        )


def uniform_bound(
    head: Head, tokens: Tokens, radius: float, n: ArrayLike, delta: float = 0.05
) -> UniformBound:
    """Bound the error of attention over `n` tokens, uniformly over queries |x| <= `radius`.

    The bound is explicit and holds for every n with probability 1 - `delta`; its proof is in
    docs/theory/uniform-convergence.md. Compact tokens (Sphere, Ball, Cube, Signs, Empirical and
    mixtures of them) and sub-Gaussian ones (Gaussian, mixtures of Gaussian and compact tokens).

    Examples
    --------
    >>> import numpy as np, attnlimit as al
    >>> head, keys = al.Head(np.eye(3)), al.Sphere(3)
    >>> al.uniform_bound(head, keys, radius=1.0, n=[10**4]).bound.round(3)
    array([0.078])
    """
    check_match(head, tokens)
    R = checks.positive(radius, "radius")
    risk = checks.probability(delta, "delta")
    counts = checks.token_list(n)
    here = envelope(head, tokens, R)
    leading = _log_leading(here)
    step = 1e-4 * R
    slope = (_log_leading(envelope(head, tokens, R + step)) - leading) / step
    peak = worst_query(head, tokens, R)
    rows = [_best(here, int(k), risk) for k in counts]
    column = {name: np.array([getattr(row, name) for row in rows]) for name in _Row.__annotations__}
    return UniformBound(
        n=counts,
        radius=R,
        delta=risk,
        method=here.method,
        constant=peak.constant,
        worst=peak.query,
        growth=peak.growth,
        bound_constant=float(np.exp(leading)) if leading < 700 else np.inf,
        bound_growth=slope,
        **column,
    )


@dataclass(frozen=True)
class _Row:
    bound: float
    score_bound: float
    value_bound: float
    lipschitz: float
    net_step: float
    log_query_net: float
    direction_gap: float
    log_direction_net: float
    trivial: bool


def _log_leading(here: Envelope) -> float:
    return here.log_crowding / 2 + float(np.log(max(here.spread, 1e-300)))


def _best(here: Envelope, n: int, delta: float) -> _Row:
    """The smallest bound over the free parameters: net step, direction net, truncation."""
    if here.method == "compact":
        return _at_level(here, n, delta, 0.0)
    base = float(np.log(6.0 * n / delta))
    rows = [_at_level(here, n, delta, factor * base) for factor in _LEVEL_FACTORS]
    return min(rows, key=lambda row: row.bound)


def _at_level(here: Envelope, n: int, delta: float, level: float) -> _Row:
    inside = here.truncated(level)
    left = delta - n * inside.escape
    query_dim = int(np.linalg.matrix_rank(here.head.A))
    value_dim = int(np.linalg.matrix_rank(here.head.V))
    lipschitz = inside.value_radius * inside.score_slope + here.limit_lipschitz
    largest = inside.value_radius + here.limit_reach
    gaps = np.array(_DIRECTION_GAPS if value_dim > 1 else (0.0,))
    log_directions = (
        value_dim * np.log1p(2 / gaps) if value_dim > 1 else np.array([np.log(2.0) * value_dim])
    )
    steps = here.radius * _NET_STEPS
    log_queries = query_dim * np.log1p(2 * here.radius / steps)
    log_tests = log_queries[:, None] + log_directions - np.log(left)
    deviation = _deviation(here, inside.log_peak, inside.tilted_escape, largest, n, log_tests)
    bounds = deviation / (1 - gaps) + lipschitz * steps[:, None]
    i, j = np.unravel_index(int(bounds.argmin()), bounds.shape)
    return _Row(
        bound=float(min(bounds[i, j], largest)),
        score_bound=here.radius * inside.score_slope,
        value_bound=inside.value_radius,
        lipschitz=lipschitz,
        net_step=float(steps[i]),
        log_query_net=float(log_queries[i]),
        direction_gap=float(gaps[j]),
        log_direction_net=float(log_directions[j]),
        trivial=bool(bounds[i, j] >= largest),
    )


def _deviation(
    here: Envelope, log_peak: float, tilted_escape: float, largest: float, n: int, log_tests: Array
) -> Array:
    """Smallest tau with P(<w, Gamma_n - Gamma> > tau at one query) <= e^-log_tests, by Bennett.

    The event is sum_i X_i > 0 for X = e^{s - K}(h - tau), h = <w, V(y - grad K)>, whose mean is
    -tau (plus what the truncation cuts off), variance at most Q (kappa + tau)^2 and maximum at
    most M * largest. Infinite where no tau below `largest` will do.
    """
    if largest == 0:
        return np.zeros_like(log_tests)
    if max(log_peak, here.log_crowding) > _HOPELESS:
        return np.full_like(log_tests, np.inf)
    ceiling = np.exp(log_peak) * largest
    crowding = np.exp(here.log_crowding)

    def enough(tau: Array) -> NDArray[np.bool_]:
        cut = np.sqrt((tau**2 + here.limit_spread**2) * tilted_escape)
        drift = tau - cut
        variance = crowding * (here.spread + tau) ** 2
        u = ceiling * np.maximum(drift, 0) / variance
        # u^2/2 / (1 + u/3) bounds Bennett's function from below where log1p would cancel.
        bennett = np.where(u > 1e-3, (1 + u) * np.log1p(u) - u, u**2 / 2 / (1 + u / 3))
        return (drift > 0) & (n * variance / ceiling**2 * bennett >= log_tests)

    low = np.zeros_like(log_tests)
    high = np.full_like(log_tests, largest)
    possible = enough(high)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        passed = enough(middle)
        low, high = np.where(passed, low, middle), np.where(passed, middle, high)
    return np.where(possible, high, np.inf)


_DIRECTIONS = 8
_STARTS = 4
_POINTS_PER_BATCH = 64


@dataclass(frozen=True, eq=False)
class WorstQuery:
    """C(R) = sup over |x| <= R of sqrt(tr C(x)), where it is reached, and how fast it grows."""

    constant: float
    query: Array
    growth: float  # d log C / dR


def worst_query(head: Head, tokens: Tokens, radius: float) -> WorstQuery:
    """Maximise log tr C(x) over the ball: deterministic starts, then L-BFGS from the best few.

    The starts are the singular directions of the scores and of the limit's Jacobian; Gaussian
    tokens have the gradient in closed form, and their maximum is on the sphere |x| = R because
    tr C = e^{t'St} (tr VSV' + |VSt|^2) increases along rays.
    """
    objective = _Objective(head, tokens, radius)
    best_value, best_point = -np.inf, np.zeros(head.query_dim)
    directions = _directions(head, tokens)
    order = np.argsort(-objective.log_trace(radius * directions), kind="stable")
    for start in directions[order[:_STARTS]]:
        # x = R z / sqrt(1 + |z|^2) maps all of space to the open ball.
        climbed = minimize(objective.descend, 3 * start, jac=True, method="L-BFGS-B", tol=1e-10)
        for candidate in (objective.ball(climbed.x), objective.rim(climbed.x)):
            value = float(objective.log_trace(candidate[None])[0])
            if value > best_value:
                best_value, best_point = value, candidate
    norm = float(np.linalg.norm(best_point))
    slope = 0.0
    if norm > (1 - 1e-6) * radius:
        around = np.stack([best_point * (1 - 1e-5), best_point * (1 + 1e-5)])
        low, high = objective.log_trace(around)
        slope = float(high - low) / (2e-5 * norm) / 2
    constant = float(np.exp(best_value / 2)) if best_value < 1400 else np.inf
    return WorstQuery(constant if best_value > -600 else 0.0, best_point, slope)


def _directions(head: Head, tokens: Tokens) -> Array:
    scores = np.linalg.svd(tokens.sqrt_cov() @ head.A, full_matrices=False)[2]
    values = np.linalg.svd(head.V @ tokens.cov() @ head.A, full_matrices=False)[2]
    plain = np.linalg.svd(head.A, full_matrices=False)[2]
    diagonal = np.ones((1, head.query_dim)) / np.sqrt(head.query_dim)
    directions = np.concatenate([scores[:_DIRECTIONS], values[:2], plain[:2], diagonal])
    return np.concatenate([directions, -directions])


class _Objective:
    """log tr C(x) and its gradient, in closed form for Gaussian tokens, by differences else."""

    def __init__(self, head: Head, tokens: Tokens, radius: float) -> None:
        self.head, self.tokens, self.radius = head, tokens, radius
        self.gram = head.V.T @ head.V

    def ball(self, z: Array) -> Array:
        return self.radius * z / np.sqrt(1 + z @ z)

    def rim(self, z: Array) -> Array:
        return self.radius * z / max(float(np.linalg.norm(z)), 1e-300)

    def log_trace(self, x: Array) -> Array:
        values = np.empty(len(x))
        for start in range(0, len(x), _POINTS_PER_BATCH):
            part = slice(start, start + _POINTS_PER_BATCH)
            t = x[part] @ self.head.A.T
            try:
                crowding = self.tokens.cgf(2 * t) - 2 * self.tokens.cgf(t)
            except NoLimitError:
                return np.full(len(x), np.inf)
            shift = self.tokens.tilted_mean(2 * t) - self.tokens.tilted_mean(t)
            covs = self.tokens.tilted_cov(2 * t)
            energy = np.einsum("kij,ij->k", covs, self.gram)
            energy += ((shift @ self.head.V.T) ** 2).sum(axis=1)
            values[part] = crowding + np.log(np.maximum(energy, 1e-300))
        return values

    def gradient(self, x: Array) -> tuple[float, Array]:
        if self.tokens.is_gaussian:
            cov = self.tokens.cov()
            score = self.head.A.T @ cov @ self.head.A
            value = self.head.V @ cov @ self.head.A
            total = float(np.trace(self.gram @ cov)) + float(((value @ x) ** 2).sum())
            log_trace = float(x @ score @ x) + float(np.log(max(total, 1e-300)))
            return log_trace, 2 * score @ x + 2 * value.T @ (value @ x) / max(total, 1e-300)
        step = 1e-5 * self.radius
        shifts = step * np.eye(len(x))
        values = self.log_trace(np.concatenate([x[None], x + shifts, x - shifts]))
        return float(values[0]), (values[1 : len(x) + 1] - values[len(x) + 1 :]) / (2 * step)

    def descend(self, z: Array) -> tuple[float, Array]:
        value, gradient = self.gradient(self.ball(z))
        scale = np.sqrt(1 + z @ z)
        return -value, -self.radius * (gradient / scale - z * (gradient @ z) / scale**3)
