"""The best-scoring of n tokens: attention whose scores are infinitely sharp.

If the scores have a continuous distribution function F, E = -n log F(max) is a standard exponential
variable. So the mean of any function of the maximum is one integral against e^-E, with the tail
probability 1 - F kept as its own small number: nothing is lost at n = 10^12
(docs/theory/hardmax.md).

Highest score level among n draws of finitely many kinds of token, ties averaged.

Softmax with an infinite scale averages the tokens that tie for the largest score. A level is a
set of tokens with one score: its probability, mean output and spread decide everything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, gamma, gammaln, ndtri_exp

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.curve import local_rate
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result, table
from attnlimit.theory.limit import check_match
from attnlimit.theory.low_temperature.corner import corner_table
from attnlimit.tokens import GaussianForm, IndependentForm, SphericalForm, Tokens
from attnlimit.tokens.score_law import resolved_panels

_LOG_STEP = 1 / 16
_LOG_RANGE = (-44.0, 4.2)
"""log E: e^-44 is beyond double precision of the integral, exp(-e^4.2) too."""


@dataclass(frozen=True, eq=False)
class HardmaxError(Result, Pictured):
    """Error of the best-scoring of n tokens, V y* / scale, against its target at each query.

    `scale` is sqrt(2 log n) for Gaussian tokens and 1 for bounded ones; ties are averaged, as
    softmax does when its scores grow without bound. `predicted_mse` is the leading behaviour for
    large n, beside the exact `mse`.
    """

    n: NDArray[np.int64]
    target: Array  # (m, d_v)
    mse: Array  # (m, len(n))         E |V y* / scale - target|^2
    bias: Array  # (m, len(n), d_v)   E V y* / scale - target
    height: Array  # (m, len(n))      E <A x, y*>, the largest score
    predicted_mse: Array  # (m, len(n))
    scale: Array  # (len(n),)
    law: str

    @property
    def root(self) -> Array:
        """Root mean squared error."""
        return np.sqrt(self.mse)

    def panel(self) -> Panel:
        """Root mean squared error against n, a line for each query."""
        lines = [
            Series(self.n, root, "line", f"query {i}", f"query {i}")
            for i, root in enumerate(np.atleast_2d(self.root))
        ]
        return Panel(self.headline(), "number of tokens n", "root mean squared error", lines)

    @property
    def local_rate(self) -> Array:
        """-d log(root error) / d log n at each n; NaN for a single n or where the error is 0."""
        return local_rate(self.n, self.root)

    def headline(self) -> str:
        return f"hard maximum over n tokens ({self.law})"

    def to_frame(self) -> pd.DataFrame:
        """One row for each query and n."""
        return table(
            query=np.arange(len(self.mse))[:, None],
            n=self.n,
            mse=self.mse,
            root=self.root,
            predicted_root=np.sqrt(self.predicted_mse),
            bias_norm=np.linalg.norm(self.bias, axis=-1),
            height=self.height,
            scale=self.scale,
            local_rate=self.local_rate,
        )


class _AtQuery(NamedTuple):
    """Everything about one query; arrays over n."""

    law: str
    target: Array
    mse: Array
    bias: Array
    height: Array
    predicted_mse: Array
    scale: Array | float = 1.0


def hardmax_error(head: Head, tokens: Tokens, x: ArrayLike, n: ArrayLike) -> HardmaxError:
    """Error of attention with infinitely sharp scores over `n` tokens, at the queries `x`.

    Gaussian tokens: the output over sqrt(2 log n) against the direction V S t / |S^1/2 t|, t = A x.
    Sphere, Ball, Cube, Signs, Empirical: the output against V times the exposed point of the
    support. Any n from 2 to 10**15 at the same cost.

    Examples
    --------
    >>> import numpy as np, attnlimit as al
    >>> al.hardmax_error(al.Head(np.eye(3)), al.Sphere(3), [1.0, 0.0, 0.0], [100, 10**6]).mse
    array([[3.96039604e-02, 3.99999600e-06]])
    """
    check_match(head, tokens)
    counts = checks.token_list(n)
    tilts = head.tilts(checks.query_rows(x, head.query_dim))
    rows = [_at(head.V, tokens, t, counts) for t in tilts]
    names = ("target", "mse", "bias", "height", "predicted_mse")
    columns = {name: np.stack([getattr(row, name) for row in rows]) for name in names}
    scale = np.broadcast_to(rows[0].scale, counts.shape)
    return HardmaxError(counts, scale=scale, law=rows[0].law, **columns)


def _at(V: Array, tokens: Tokens, t: Array, n: NDArray[np.int64]) -> _AtQuery:
    if not np.linalg.norm(t) > 0:
        raise BadInput("A x is zero at a query, so all scores are equal; leave that query out.")
    atoms = tokens.atoms()
    if atoms is not None:
        return _levels(*population_levels(*atoms, t, V), n)
    match tokens.form:
        case GaussianForm():
            return _gaussian(V, tokens, t, n)
        case SphericalForm() as form:
            return _spherical(V, form, t, n)
        case IndependentForm(reach=half_width, edge="flat"):
            return _cube(V, half_width, t, n)
        case IndependentForm(reach=scale, edge="atom"):
            return _levels(*sign_levels(scale, t, V), n)
    raise BadInput(
        f"the law of the best-scoring token is not known for {tokens!r}; use Gaussian, "
        "Sphere, Ball, Cube, Signs or Empirical tokens."
    )


def _gaussian_direction(V: Array, tokens: Tokens, t: Array) -> tuple[float, Array]:
    whitened = tokens.sqrt_cov() @ t
    score_std = float(np.linalg.norm(whitened))
    if not score_std > 0:
        raise BadInput("the scores of a query do not vary over these tokens; leave that query out.")
    return score_std, V @ tokens.sqrt_cov() @ (whitened / score_std)


def _gaussian(V: Array, tokens: Tokens, t: Array, n: NDArray[np.int64]) -> _AtQuery:
    score_std, along = _gaussian_direction(V, tokens, t)
    centre = V @ tokens.mean()
    across = max(float(((V @ tokens.cov()) * V).sum()) - float(along @ along), 0.0)
    scale = np.sqrt(2 * np.log(n.astype(np.float64)))
    first, second = np.empty(len(n)), np.empty(len(n))
    for i, k in enumerate(n):  # mean and variance of the largest of n standard normals
        nodes = maximum_nodes(int(k))
        first[i] = nodes.weight @ nodes.normal()
        second[i] = nodes.weight @ (nodes.normal() - first[i]) ** 2
    bias = (centre + first[:, None] * along) / scale[:, None] - along
    mse = (bias**2).sum(axis=1) + (second * (along @ along) + across) / scale**2
    # Gumbel: height = scale - (log log n + log 4 pi)/(2 scale) + G/scale.
    typical = scale - (2 * np.log(scale) - np.log(2) + np.log(4 * np.pi)) / (2 * scale)
    typical += np.euler_gamma / scale
    leading = (centre + typical[:, None] * along) / scale[:, None] - along
    wobble = np.pi**2 / 6 / scale**2 * (along @ along)
    return _AtQuery(
        "normal maximum",
        target=along,
        mse=mse,
        bias=bias,
        height=float(t @ tokens.mean()) + score_std * first,
        predicted_mse=(leading**2).sum(axis=1) + (wobble + across) / scale**2,
        scale=scale,
    )


def _spherical(V: Array, form: SphericalForm, t: Array, n: NDArray[np.int64]) -> _AtQuery:
    unit = t / np.linalg.norm(t)
    target = form.radius * (V @ unit)
    gain = float(target @ target)
    others = form.radius**2 * float((V**2).sum()) - gain
    ways = form.radial_dim - 1
    gap, square = np.empty(len(n)), np.empty(len(n))
    for i, k in enumerate(n):
        nodes = maximum_nodes(int(k))
        cap = nodes.cap_gap(form.radial_dim)
        gap[i], square[i] = nodes.weight @ cap, nodes.weight @ cap**2
    half = ways / 2
    # P(gap < g) = g^half / c for small g: the gap is a Weibull variable, of this scale.
    log_c = half * np.log(2) + np.log(half) + 2 * gammaln(half) - gammaln(2 * half)
    small = np.exp((log_c - np.log(n)) / half)
    first, second = small * gamma(1 + 1 / half), small**2 * gamma(1 + 2 / half)
    return _AtQuery(
        "cap",
        target=target,
        mse=gain * square + others * (2 * gap - square) / ways,
        bias=-gap[:, None] * target,
        height=form.radius * float(np.linalg.norm(t)) * (1 - gap),
        predicted_mse=gain * second + others * 2 * first / ways,
    )


def _cube(V: Array, a: float, t: Array, n: NDArray[np.int64]) -> _AtQuery:
    size = np.abs(t)
    acting = size > 1e-14 * size.max()
    slopes = 2 * a * size[acting]
    towards = 2 * a * np.sign(t[acting]) * V[:, acting]
    form = towards.T @ towards
    free = a**2 / 3 * float((V[:, ~acting] ** 2).sum())
    table = corner_table(slopes, form, int(n.max()))
    count = len(slopes)
    mse, bias, height = [], [], []
    for k in n:
        weight = table.best_of(int(k))
        mse.append(float(weight @ table.quadratic) + free)
        bias.append(-towards @ (weight @ table.linear))
        height.append(a * float(size.sum()) - float((weight * table.density) @ table.shortfall))
    # Near the corner P(D) = D^k/volume and b U / D is uniform on the simplex.
    volume = np.exp((gammaln(count + 1) + np.log(slopes).sum() - np.log(n)) * 2 / count)
    inverse = 1 / slopes
    simplex = (inverse @ form @ inverse + (np.diag(form) * inverse**2).sum()) / (count**2 + count)
    return _AtQuery(
        "corner",
        target=V[:, acting] @ (a * np.sign(t[acting])),
        mse=np.array(mse),
        bias=np.array(bias),
        height=np.array(height),
        predicted_mse=volume * gamma(1 + 2 / count) * simplex + free,
    )


def _levels(levels: Levels, target: Array, n: NDArray[np.int64]) -> _AtQuery:
    bias, mse, height = zip(*(levels.errors(int(k)) for k in n), strict=True)
    best = float(levels.probability[0])
    missed = np.exp(n * np.log1p(-min(best, 1 - 1e-16)))
    step = float((levels.offset[1] ** 2).sum()) if len(levels.score) > 1 else 0.0
    return _AtQuery(
        "finite levels",
        target=target,
        mse=np.array(mse),
        bias=np.array(bias),
        height=np.array(height),
        # The second level wins when the first is not drawn; ties within the first average out.
        predicted_mse=missed * step + float(levels.spread[0]) / (n * best),
    )


@dataclass(frozen=True, eq=False)
class MaximumNodes:
    """Quadrature nodes for the position of the maximum of n draws, as probabilities."""

    weight: Array  # sums to one
    log_below: Array  # log F(max)
    above: Array  # 1 - F(max), without cancellation

    def normal(self) -> Array:
        """The maximum itself for standard normal draws."""
        upper = -ndtri_exp(np.log(self.above))
        lower = ndtri_exp(np.minimum(self.log_below, -1e-300))
        return np.where(self.above < 0.5, upper, lower)

    def cap_gap(self, radial_dim: int) -> Array:
        """1 - height for draws uniform on the unit sphere of R^radial_dim, one coordinate kept."""
        half = (radial_dim - 1) / 2
        return np.asarray(2 * betaincinv(half, half, self.above))


def maximum_nodes(n: int) -> MaximumNodes:
    """Trapezoid rule in log E: analytic and doubly exponentially small at the upper end."""
    log_exponential = np.arange(_LOG_RANGE[0], _LOG_RANGE[1], _LOG_STEP)
    exponential = np.exp(log_exponential)
    weight = _LOG_STEP * np.exp(log_exponential - exponential)
    below = -exponential / n
    return MaximumNodes(weight / weight.sum(), below, -np.expm1(below))


_TIE = 1e-12
_MAX_LEVELS = 2_000_000
_CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Levels:
    """Score levels from the highest down, outputs measured from the target."""

    score: Array  # (L,)
    probability: Array  # (L,)
    offset: Array  # (L, d_v)   mean output minus the target
    spread: Array  # (L,)       variance of the output within the level

    def winning(self, n: int) -> Array:
        """P(the best of n draws is at each level)."""
        none_above, share = self._from_above(n)
        return none_above * -np.expm1(n * np.log1p(-share))

    def _from_above(self, n: int) -> tuple[Array, Array]:
        """P(none of n draws is above each level), and the level's share of those not above."""
        above = np.minimum(np.append(0.0, np.cumsum(self.probability)[:-1]), 1 - 1e-16)
        share = np.minimum(self.probability / (1 - above), 1 - 1e-16)
        return np.exp(n * np.log1p(-above)), share

    def errors(self, n: int) -> tuple[Array, float, float]:
        """Bias, mean squared error and expected largest score of n draws."""
        win = self.winning(n)
        mse = float(win @ (self.offset**2).sum(axis=1))
        tied = np.flatnonzero((self.spread > 0) & (win > 1e-18))
        none_above, share = self._from_above(n)
        for start in range(0, len(tied), _CHUNK):
            level = tied[start : start + _CHUNK]
            weight = none_above[level] * self.spread[level]
            mse += float(weight @ _mean_inverse_count(n, share[level]))
        return win @ self.offset, mse, float(win @ self.score)


def _mean_inverse_count(n: int, share: Array) -> Array:
    """E[1/N; N >= 1] for N binomial(n, share): int_0^1 ((1 - p + pu)^n - (1-p)^n)/u du."""
    # Nodes of 1 - u: fine where u is near 1.
    gap, weight = resolved_panels(np.append(0.0, 0.5 ** np.arange(55.0, -1.0, -1.0)))
    missed = np.exp(n * np.log1p(-share))
    value = np.exp(n * np.log1p(-np.multiply.outer(share, gap))) - missed[:, None]
    return np.asarray(value @ (weight / (1 - gap)))


def population_levels(
    points: Array, weights: Array, t: Array, values: Array
) -> tuple[Levels, Array]:
    """Levels of a finite population, and the target: the mean of its best tokens."""
    scores = np.where(weights > 0, points @ t, -np.inf)
    order = np.argsort(-scores, kind="stable")[: np.count_nonzero(weights > 0)]
    raw = _merge(scores[order], weights[order], points[order] @ values.T, np.zeros(len(order)))
    target = raw.offset[0]
    return replace(raw, offset=raw.offset - target), target


def sign_levels(scale: float, t: Array, values: Array) -> tuple[Levels, Array]:
    """Levels of random signs: coordinates with one |t_i| are exchangeable, so count the flips."""
    size = np.abs(t)
    acting = size > _TIE * size.max()
    towards = scale * np.sign(t) * values  # (d_v, d): columns that a flip subtracts twice
    groups = _equal_sizes(size, acting)
    combinations = float(np.prod([len(g) + 1.0 for g in groups]))
    if combinations > _MAX_LEVELS:
        raise BadInput(
            f"random signs have {combinations:.3g} score levels at this query, more than "
            f"{_MAX_LEVELS}; use a query whose scores A x have fewer different coordinates."
        )
    target = towards[:, acting].sum(axis=1)
    shape = tuple(len(g) + 1 for g in groups)
    counts = np.stack(np.unravel_index(np.arange(int(combinations)), shape), axis=1) * 1.0
    sizes = np.array([len(g) for g in groups], dtype=np.float64)
    log_choices = gammaln(sizes + 1) - gammaln(counts + 1) - gammaln(sizes - counts + 1)
    probability = np.exp((log_choices - sizes * np.log(2)).sum(axis=1))
    score = scale * (size.sum() - 2 * counts @ np.array([size[g[0]] for g in groups]))
    share = counts / sizes
    sums = np.stack([towards[:, g].sum(axis=1) for g in groups])  # (G, d_v)
    own = np.array([(towards[:, g] ** 2).sum() for g in groups])
    # Positions of c flips among m: variance of the flipped columns' sum.
    factor = np.divide(
        share * (1 - share) * sizes, sizes - 1, out=np.zeros_like(share), where=sizes > 1
    )
    within = 4 * factor @ (own - (sums**2).sum(axis=1) / sizes)
    free = scale**2 * float((values[:, ~acting] ** 2).sum())
    order = np.argsort(-score, kind="stable")
    offset = -2 * share @ sums
    columns = (score, probability, offset, within + free)
    return _merge(*(column[order] for column in columns)), target


def _equal_sizes(size: Array, acting: Array) -> list[Array]:
    index = np.flatnonzero(acting)
    index = index[np.argsort(size[index], kind="stable")]
    cuts = np.flatnonzero(np.diff(size[index]) > _TIE * size.max()) + 1
    return list(np.split(index, cuts))


def _merge(score: Array, probability: Array, offset: Array, spread: Array) -> Levels:
    """Join levels whose scores are equal but for rounding."""
    scale = np.abs(score).max()
    starts = np.append(0, np.flatnonzero(-np.diff(score) > _TIE * scale) + 1)
    total = np.add.reduceat(probability, starts)
    mean = np.add.reduceat(probability[:, None] * offset, starts) / total[:, None]
    label = np.cumsum(np.isin(np.arange(len(score)), starts)) - 1
    around = spread + ((offset - mean[label]) ** 2).sum(axis=1)
    within = np.add.reduceat(probability * around, starts) / total
    rounding = 1e-24 * float((offset**2).sum(axis=1).max())
    return Levels(score[starts], total, mean, np.where(within > rounding, within, 0.0))
