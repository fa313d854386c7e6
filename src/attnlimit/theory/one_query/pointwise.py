"""The law of attention over n tokens at a query, and averaged over queries, for every n >= 2."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import CubicSpline

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result, table
from attnlimit.theory.delta import average_over_queries, fluctuation
from attnlimit.theory.limit import check_match
from attnlimit.theory.moments import WhitenedHead, normal_mixture
from attnlimit.theory.one_query.gaussian import check_score_std, gaussian_law
from attnlimit.theory.one_query.product import tabulate_product
from attnlimit.theory.one_query.quadrature import LaplaceTable, tabulate
from attnlimit.tokens import IndependentForm, ScoreLaw, Tokens


@dataclass(frozen=True, eq=False)
class PointwiseError(Result, Pictured):
    """Error of attention over n tokens at each query, against the infinite-token limit."""

    n: NDArray[np.int64]
    mse: Array  # (m, len(n))          E |Gamma_n - Gamma|^2
    bias: Array  # (m, len(n), d_v)    E Gamma_n - Gamma
    participation: Array  # (m, len(n))   E sum_i p_i^2, NaN for the delta method
    method: str

    def headline(self) -> str:
        return f"pointwise error ({self.method})"

    def panel(self) -> Panel:
        """Root mean squared error against n, a line for each query."""
        lines = [
            Series(self.n, np.sqrt(mse), "line", f"query {i} ({self.method})", f"query {i}")
            for i, mse in enumerate(self.mse)
        ]
        return Panel(self.headline(), "number of tokens n", "root mean squared error", lines)

    def to_frame(self) -> pd.DataFrame:
        """One row for each query and n."""
        return table(
            query=np.arange(len(self.mse))[:, None],
            n=self.n,
            mse=self.mse,
            bias_norm=np.linalg.norm(self.bias, axis=-1),
            participation=self.participation,
            method=self.method,
        )


def pointwise_error(
    head: Head,
    tokens: Tokens,
    x: ArrayLike,
    n: ArrayLike,
    *,
    method: str = "exact",
) -> PointwiseError:
    """Error of attention over `n` tokens at the queries `x`.

    Parameters
    ----------
    x : (m, d) array
        Queries; a single query of shape (d,) counts as m = 1.
    n : sequence of int
        Numbers of tokens, each at least 2; up to 10**12 and beyond at the same cost.
    method : {"exact", "delta"}
        "exact" is an equality at every n. "delta" is the large-n central limit theorem.

    Examples
    --------
    >>> import numpy as np, attnlimit as al
    >>> head, keys = al.Head(np.eye(2)), al.Sphere(2)
    >>> al.pointwise_error(head, keys, [1.0, 0.0], [10, 100]).mse.round(5)
    array([[0.09476, 0.00831]])
    """
    check_match(head, tokens)
    checks.one_of(method, ("exact", "delta"), "method")
    counts = checks.token_list(n)
    queries = checks.query_rows(x, head.query_dim)
    tilts = head.tilts(queries)
    tokens.cgf(tilts)  # NoLimitError where the limit does not exist
    if method == "delta":
        return _delta(head, tokens, queries, counts)
    if tokens.is_gaussian:
        return _exact_gaussian(head, tokens, tilts, counts)
    rows = [_exact_at(head, tokens, t, counts) for t in tilts]
    mse, bias, participation = (np.array(column) for column in zip(*rows, strict=True))
    return PointwiseError(counts, mse, bias, participation, "exact")


def _delta(head: Head, tokens: Tokens, queries: Array, n: NDArray[np.int64]) -> PointwiseError:
    large_n = fluctuation(head, tokens, queries)
    trace = np.trace(large_n.covariance, axis1=-2, axis2=-1)
    return PointwiseError(
        n=n,
        mse=trace[:, None] / n,
        bias=large_n.bias[:, None, :] / n[:, None],
        participation=np.full((len(queries), len(n)), np.nan),
        method="delta",
    )


def _exact_gaussian(
    head: Head, tokens: Tokens, tilts: Array, n: NDArray[np.int64]
) -> PointwiseError:
    """E|Gamma_n - Gamma|^2 = f |V S^1/2 e|^2 + p (tr VSV' - |V S^1/2 e|^2), e the direction."""
    root = tokens.sqrt_cov()
    whitened = tilts @ root
    score_std = np.linalg.norm(whitened, axis=1)
    check_score_std(float(score_std.max()))
    law = gaussian_law(score_std[:, None], n)
    unit = whitened / np.maximum(score_std, 1e-300)[:, None]
    along = unit @ (head.V @ root).T
    gain = (along**2).sum(axis=1)[:, None]
    total = np.trace(head.V @ tokens.cov() @ head.V.T)
    return PointwiseError(
        n=n,
        mse=law.mse * gain + law.participation * (total - gain),
        bias=law.bias[..., None] * along[:, None, :],
        participation=law.participation,
        method="exact",
    )


def _exact_at(
    head: Head, tokens: Tokens, t: Array, n: NDArray[np.int64]
) -> tuple[Array, Array, Array]:
    """Error, bias and participation at one query, for all n."""
    form = tokens.form
    if isinstance(form, IndependentForm):
        table = tabulate_product(tokens, form, t, head.V, n)
        return _integrate(table, np.eye(head.value_dim), n)
    law = tokens.score_law(t)
    if law is None:
        raise BadInput(
            f"{tokens!r} does not know the law of its scores, so there is no exact law; give it a "
            '`score_law`, or use predict or pointwise_error with method="delta".'
        )
    return integrate_score_law(law, head.V, tokens.tilted_mean(t) @ head.V.T, n)


def integrate_score_law(
    law: ScoreLaw, V: Array, target: Array, n: NDArray[np.int64]
) -> tuple[Array, Array, Array]:
    """Error against `target`, bias and participation of attention over keys of `law`."""
    tilt = law.weight * np.exp(law.score - law.score[-1])
    centre = tilt @ law.coefficients / tilt.sum()
    centred = law.coefficients - centre
    lift = V @ law.basis.T  # (d_v, r): output = lift @ coefficients
    energy = ((centred @ lift.T) ** 2).sum(axis=1)
    energy += law.spread @ np.array([((V @ part) * V).sum() for part in law.spread_cov])
    table = tabulate(law.score, law.weight, centred, energy[:, None], n)
    mse, bias, participation = _integrate(table, lift, n)
    # The nodes reach as far as n draws can, which may fall short of where the limit lives.
    shortfall = lift @ centre - target
    if np.linalg.norm(shortfall) > 1e-9 * (1 + np.linalg.norm(target)):
        mse = mse + 2 * bias @ shortfall + shortfall @ shortfall
        bias = bias + shortfall
    return mse, bias, participation


def _integrate(
    table: LaplaceTable, lift: Array, n: NDArray[np.int64]
) -> tuple[Array, Array, Array]:
    once, twice = table.meeting(n)
    outputs = table.linear @ lift.T
    mse = once @ table.quadratic[:, 0] + twice @ (outputs**2).sum(axis=1)
    return mse, once @ outputs, once @ table.square


_QUERIES = 8192
_NUMBERS = 2**20  # memory: fewer queries in high dimensions
_KNOTS = 129
_WIDEST = 0.375  # queries are drawn at most twice as wide


def average_pointwise_error(
    head: Head, tokens: Tokens, n: NDArray[np.int64]
) -> tuple[Array, Array]:
    """E|Gamma_n(x) - Gamma(x)|^2 over x ~ tokens, and the error of the average over queries."""
    if tokens.is_gaussian:
        (first, second), gap = _gaussian_halves(WhitenedHead.of(head, tokens), n)
        average = (first + second) / 2
        return average, np.hypot(np.abs(first - second) / 2, gap * average)
    return average_over_queries(tokens, lambda x: pointwise_error(head, tokens, x, n).mse)


def _gaussian_halves(white: WhitenedHead, n: NDArray[np.int64]) -> tuple[list[Array], float]:
    """f |V S^1/2 e|^2 + p (tr VSV' - |V S^1/2 e|^2) over two sets of queries.

    f and p are splines in sigma, whose relative error is returned too. At large n the average is
    of e^{|b|^2}, b the tilt: half of the queries are from the wider normal law that carries it.
    """
    B, dim = white.B, len(white.B)
    count = int(np.clip(2 ** int(np.log2(_NUMBERS / dim)), 512, _QUERIES))
    largest = max(float(np.linalg.eigvalsh(white.tilt_cov)[-1]), 1e-300)
    power = min(1.0, _WIDEST / largest / max(1.0, largest / 4))  # most saturate at large ones
    cov = np.asarray(np.linalg.inv(np.eye(dim) - 2 * power * B @ B.T), dtype=np.float64)
    mean = 2 * power * cov @ B @ white.offset
    rules = [normal_mixture(dim, count, seed, mean, cov) for seed in (0, 1)]
    tilts, weights = (
        np.stack(part) for part in zip(*((white.tilts(z), w) for z, w in rules), strict=True)
    )
    sigma = np.linalg.norm(tilts, axis=2)
    gain = ((tilts @ white.metric) * tilts).sum(axis=2) / np.maximum(sigma, 1e-150) ** 2
    total = float(np.trace(white.metric))
    top = float(sigma.max())
    check_score_std(top)
    if top == 0:
        return [total / n.astype(np.float64)] * 2, 0.0
    # Even in asinh(sigma/2): dense where f and p change over one unit of sigma, sparse above.
    knots = 2 * np.sinh(np.linspace(0, np.arcsinh(top / 2), _KNOTS))
    law = gaussian_law(knots[:, None], n)
    logs = np.log(np.concatenate([law.mse, law.participation], axis=1))
    coarse = CubicSpline(knots[::2], logs[::2])(knots[1::2])
    along, across = np.split(np.exp(CubicSpline(knots, logs)(sigma)), 2, axis=2)
    means = gain[..., None] * along + (total - gain)[..., None] * across
    means = (weights[..., None] * means).sum(axis=1)
    return list(means), float(np.abs(np.expm1(coarse - logs[1::2])).max())
