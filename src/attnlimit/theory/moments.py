"""How the mean and covariance of attention's outputs respond to one token: influence functions.

All n tokens are queries and keys. The influence psi of a token on the mean output makes
sqrt(n) (m_n - m) tend to N(0, Cov psi); see docs/theory/moments.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import NotConverged
from attnlimit.head import Head
from attnlimit.theory.limit import check_limit, check_match, limit
from attnlimit.tokens import Tokens
from attnlimit.tokens.gaussian import normal_rule

_QUASI_POINTS = 4096
_BLOCK = 1024
_REACH_TOLERANCE = 0.5
_REACH_QUERIES = 256


@dataclass(frozen=True, eq=False)
class WhitenedHead:
    """A head seen from whitened Gaussian tokens y = mean + S^1/2 g.

    The query z has tilt b(z) = offset + B'z, so its scores are N(., |b|^2) and its output tends
    to b(z); `values` maps whitened outputs to real ones.
    """

    B: Array  # (d, d): score of whitened query z on whitened key g is z'Bg
    offset: Array  # (d,): tilt of the average query, S^1/2 A mean
    values: Array  # (d_v, d): V S^1/2

    @staticmethod
    def of(head: Head, tokens: Tokens) -> WhitenedHead:
        """Whiten `head` for these Gaussian tokens, which are its queries too."""
        check_match(head, tokens, self_attention=True)
        root = tokens.sqrt_cov()
        return WhitenedHead(
            B=root @ head.A.T @ root,
            offset=root @ head.A @ tokens.mean(),
            values=head.V @ root,
        )

    @cached_property
    def metric(self) -> Array:
        """values' values: |values u|^2 = u' metric u."""
        return self.values.T @ self.values

    @cached_property
    def tilt_cov(self) -> Array:
        """Covariance of the tilt b(z) over queries: B'B."""
        return self.B.T @ self.B

    def tilts(self, z: Array) -> Array:
        """b(z) for whitened queries, one a row."""
        return self.offset + z @ self.B


def normal_mixture(dim: int, size: int, seed: int, mean: Array, cov: Array) -> tuple[Array, Array]:
    """Points, half standard normal and half N(mean, cov), and their standard normal weights."""
    points = normal_rule(dim, size, seed).copy()
    values, axes = np.linalg.eigh(cov)
    wide = points[size // 2 :]  # every other point of a rule would lie on one side of the origin
    wide[:] = mean + (wide @ axes) * np.sqrt(values) @ axes.T
    along = (points - mean) @ axes
    log_ratio = ((points**2).sum(axis=1) - (along**2 / values).sum(axis=1)) / 2
    log_ratio -= np.log(values).sum() / 2
    weights = 1 / (0.5 + 0.5 * np.exp(np.minimum(log_ratio, 700.0)))
    return points, weights / weights.sum()


def mean_covariance(head: Head, tokens: Tokens) -> Array:
    """n times the covariance of the mean output for large n: Cov psi, of shape (d_v, d_v).

    Closed form for Gaussian tokens, infinite at and past the horizon 1; sums for finitely many;
    a quasi-random rule, checked against a second one, for the others.

    Examples
    --------
    >>> import attnlimit as al
    >>> al.mean_covariance(al.Head([[0.5]]), al.Gaussian(dim=1)).round(4)
    array([[2.3516]])
    """
    return mean_covariance_with_error(head, tokens)[0]


def mean_covariance_with_error(head: Head, tokens: Tokens) -> tuple[Array, float]:
    """`mean_covariance`, and its numerical error relative to its largest entry."""
    check_limit(head, tokens)
    if tokens.is_gaussian:
        return gaussian_mean_covariance(WhitenedHead.of(head, tokens)), 0.0
    atoms = tokens.atoms()
    if atoms is not None:
        psi = mean_influence(head, tokens, atoms[0])
        return (atoms[1] * psi.T) @ psi, 0.0
    first, second = (_quasi_mean_covariance(head, tokens, seed) for seed in (0, 1))
    gap = float(np.abs(first - second).max() / np.abs(first + second).max())
    if not gap < 0.05:
        raise NotConverged(
            f"the mean's covariance is carried by rare tokens here: two quasi-random rules of "
            f"{_QUASI_POINTS} points differ by {200 * gap:.0f} %; use measure(head, tokens, "
            "'mean', n, replicates).",
            reached=gap,
        )
    return (first + second) / 2, gap


def gaussian_mean_covariance(white: WhitenedHead) -> Array:
    """Cov psi = B'B + B + B' + E[G^2 ...], docs/theory/moments.md; any mean of the tokens."""
    size = len(white.values)
    spectrum, axes = np.linalg.eigh(white.tilt_cov)
    if spectrum[-1] >= 1:
        return np.full((size, size), np.inf)
    offset = axes.T @ white.offset
    precision = (1 - spectrum) / (1 + spectrum)
    centre = offset / precision
    log_mass = (offset @ offset + offset @ centre - np.log(precision).sum()) / 2
    log_mass -= np.log1p(spectrum).sum()
    second = np.diag(1 / precision) + np.outer(centre, centre)
    second /= np.outer(1 + spectrum, 1 + spectrum)
    as_key = np.exp(log_mass) * (axes @ second @ axes.T)
    whitened = white.tilt_cov + white.B + white.B.T + as_key
    return white.values @ whitened @ white.values.T


def mean_influence(head: Head, tokens: Tokens, y: ArrayLike) -> Array:
    """psi(y) = Gamma(y) - E Gamma + E_x[e^{<Ax,y> - K(Ax)} (Vy - Gamma(x))], one row a token."""
    check_limit(head, tokens)
    points = checks.rows(y, tokens.dim, "y", "the dimension of the tokens")
    if tokens.is_gaussian:
        white, g, gain, shrunk = _key_response(head, tokens, points)
        return (g @ white.B + gain[:, None] * shrunk) @ white.values.T
    return _quasi_mean_influence(head, tokens, points, 0)


def _quasi_mean_influence(head: Head, tokens: Tokens, points: Array, seed: int) -> Array:
    queries, weights = tokens.rule(_QUASI_POINTS, seed)
    output = limit(head, tokens)
    at_queries = output(queries)
    as_query = output(points) - weights @ at_queries
    columns = np.concatenate([np.ones((len(queries), 1)), at_queries], axis=1) * weights[:, None]
    sums = _ratio_sums(head, tokens, points, queries, columns)
    return as_query + (points @ head.V.T) * sums[:, :1] - sums[:, 1:]


def _key_response(
    head: Head, tokens: Tokens, points: Array
) -> tuple[WhitenedHead, Array, Array, Array]:
    """The head and keys g, whitened, with G(g) and (I + Q)^{-1}(g - offset).

    That is a key's pull on all queries, Q the tilts' covariance.
    """
    white = WhitenedHead.of(head, tokens)
    g = (points - tokens.mean()) @ np.linalg.pinv(tokens.sqrt_cov())
    identity = np.eye(len(white.B))
    shrunk = np.linalg.solve(identity + white.tilt_cov, (g - white.offset).T).T.astype(np.float64)
    log_gain = ((g**2).sum(1) - ((g - white.offset) * shrunk).sum(1)) / 2
    log_gain -= np.linalg.slogdet(identity + white.tilt_cov)[1] / 2
    return white, g, np.exp(np.minimum(log_gain, 700.0)), shrunk


def check_reach(tokens: Tokens, tilts: Array, points: Array, weights: Array) -> None:
    """Raise unless the points stand for the tokens where these queries look.

    E e^{<t,y> - K(t)} = 1 for every query; points that miss it by far have no token there.
    """
    scores = points @ tilts.T - tokens.cgf(tilts)
    seen = weights @ np.exp(np.minimum(scores, 700.0))
    typical = float(np.median(np.abs(seen - 1)))
    if typical > _REACH_TOLERANCE:
        raise NotConverged(
            f"attention is too sharp for {len(points)} quasi-random tokens: they carry "
            f"{float(np.median(seen)):.2g} of the weight of a typical query instead of 1; "
            "use measure(head, tokens, statistic, n, replicates).",
            reached=typical,
        )


def _ratio_sums(head: Head, tokens: Tokens, points: Array, queries: Array, columns: Array) -> Array:
    """Sum over queries of e^{<Ax,y> - K(Ax)} times `columns`, at each point y, in blocks."""
    tilts = head.tilts(queries)
    cgf = tokens.cgf(tilts)
    total = np.empty((len(points), columns.shape[1]))
    for start in range(0, len(points), _BLOCK):
        block = points[start : start + _BLOCK]
        total[start : start + _BLOCK] = np.exp(np.minimum(block @ tilts.T - cgf, 700.0)) @ columns
    return total


def _quasi_mean_covariance(head: Head, tokens: Tokens, seed: int) -> Array:
    """Cov psi: the product of two rules of queries is free of their own noise."""
    points, weights = tokens.rule(_QUASI_POINTS, seed + 17)
    queries = tokens.points(_REACH_QUERIES, seed)
    check_reach(tokens, head.tilts(queries), points, weights)
    first, second = (_quasi_mean_influence(head, tokens, points, seed + k) for k in (0, 2))
    product = (weights * first.T) @ second
    return (product + product.T) / 2
