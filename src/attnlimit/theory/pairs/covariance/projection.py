"""What one token does to the moments of attention over n Gaussian tokens: the projection on it.

The first Hoeffding term, exact in n: given that one of the keys is y, with g = <e, y>,

    E[Gamma_n(z) | y] = weight y + pull e,
    E[Gamma_n Gamma_n' | y] = square yy' + cross (ye' + ey') + along ee' + across I,

with coefficients that depend on (sigma, g) only, tabulated once for each n. Averaged over queries
this is the conditional mean of m_n and S_n given one token: a lower bound of their variance, and
the fluctuation of the covariance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.theory.moments import WhitenedHead
from attnlimit.theory.pairs.covariance.known_key import COEFFICIENTS, known_key
from attnlimit.theory.pairs.covariance.output_moments import OutputMoments
from attnlimit.theory.pairs.gaussian import normal_nodes
from attnlimit.theory.pairs.plane import HeightNodes
from attnlimit.theory.pairs.query_rule import QueryRule
from attnlimit.tokens import Tokens

_SIGMA_NODES = 32
_REACH = 9.0  # |g| of keys
_BLOCK = 64


@dataclass(frozen=True, eq=False)
class Projection:
    """Conditional means of the moments of attention over n tokens, given one of them.

    The queries' geometry does not depend on n, so one projection serves several n: results have
    a leading axis for n.
    """

    n: NDArray[np.int64]
    white: WhitenedHead
    token_mean: Array
    unwhiten: Array  # (d, d): whitened token = (y - token_mean) @ unwhiten
    rule: QueryRule
    sigma_step: float
    g_step: float
    tables: Array  # (len n, 6, S, G): coefficients on a uniform grid of (sigma, g)
    outputs: tuple[OutputMoments, ...]  # one for each n

    @staticmethod
    def of(
        head: Head, tokens: Tokens, n: ArrayLike, *, queries: int = 256, seed: int = 0
    ) -> Projection:
        """Build the projection for attention over `n` of `tokens`, from a rule of queries."""
        counts = np.atleast_1d(checks.token_counts(n, smallest=2))
        white = WhitenedHead.of(head, tokens)
        rule = QueryRule.of(white, queries, seed)
        spread = np.linalg.norm(rule.tilts(), axis=1)
        top = 1.2 * float(spread.max()) + 8 * float(np.linalg.norm(white.B, 2)) + 1e-9
        g_step = min(0.1, 0.4 / top)
        sigmas = np.linspace(0, top, _SIGMA_NODES)
        grid = np.arange(-_REACH, _REACH + g_step, g_step)
        return Projection(
            n=counts,
            white=white,
            token_mean=tokens.mean(),
            unwhiten=np.asarray(np.linalg.pinv(tokens.sqrt_cov()), dtype=np.float64),
            rule=rule,
            sigma_step=float(sigmas[1]),
            g_step=g_step,
            tables=np.stack([_table(float(s), grid, counts) for s in sigmas], axis=2),
            outputs=OutputMoments.at(counts, top, white.offset),
        )

    def mean(self, y: ArrayLike) -> Array:
        """E[m_n | one token is y] - E m_n, of shape (len n, m, d_v).

        The sum of it over the n tokens is the best approximation of m_n - E m_n by a sum over
        tokens. Whitened, a key y moves the other queries' average by E_z[weight y + pull e]; as a
        query it adds its own output over n.
        """
        points = np.atleast_2d(checks.vectors(y, len(self.token_mean), "y"))
        g = (points - self.token_mean) @ self.unwhiten
        blocks = [g[start : start + _BLOCK] for start in range(0, len(g), _BLOCK)]
        as_key = np.concatenate([self.as_key(block)[0] for block in blocks], axis=1)
        return as_key + self.mean_as_query(g)

    def mean_as_query(self, g: Array) -> Array:
        """What whitened tokens add to m_n as queries, less its mean; (len n, m, d_v)."""
        tilts, typical = self.white.tilts(g), self.rule.tilts()
        own = np.stack([o.mean(tilts) - o.mean(typical).mean(axis=0) for o in self.outputs])
        return own @ self.white.values.T / self.n[:, None, None]

    def as_key(self, g: Array, squares: bool = False) -> tuple[Array, Array]:
        """What whitened tokens do to m_n, and if asked to S_n, through the other queries.

        Shapes (len n, m, d_v) and (len n, m, d_v, d_v), less their means; S_n is about the
        limit's mean.
        """
        places, unit = self._places(g)
        values = self.white.values.T
        key, direction = g @ values, unit @ values
        means, moments = [], []
        for table, n in zip(
            self.tables.reshape(len(self.n), len(COEFFICIENTS), -1), self.n, strict=True
        ):
            rows = table if squares else table[:2]
            found = [sum(t.take(place) * w for place, w in places) for t in rows]
            share = 1 - 1 / float(n)
            mean = found[0].sum(axis=1)[:, None] * key + (found[1][:, None, :] @ direction)[:, 0]
            means.append(share * mean)
            if squares:
                moments.append(share * self._square(key, direction, found[2:], mean))
        return np.stack(means), np.stack(moments) if squares else np.empty(0)

    def _square(self, key: Array, direction: Array, found: list[Array], mean: Array) -> Array:
        square, cross, along, across = found
        values = self.white.values
        moment = np.swapaxes(direction, 1, 2) @ (along[..., None] * direction)
        moment += across.sum(axis=1)[:, None, None] * (values @ values.T)
        # square yy' + cross (ye' + ey') - (mean offset' + offset mean') as one symmetric part
        half = square.sum(axis=1)[:, None] / 2 * key + (cross[:, None, :] @ direction)[:, 0]
        mixed = key[:, :, None] * half[:, None, :]
        mixed -= mean[:, :, None] * (values @ self.white.offset)
        return moment + mixed + np.swapaxes(mixed, 1, 2)

    def _places(self, g: Array) -> tuple[list[tuple[NDArray[np.int64], Array]], Array]:
        """Where each query of the rule falls in the tables for each token, and its direction.

        Four corners (m, Q) with weights that include the query's share.
        """
        tilts = self.rule.tilts_for(g)
        sigma = np.linalg.norm(tilts, axis=-1)
        unit = tilts / np.maximum(sigma, 1e-300)[..., None]
        score = (unit @ g[:, :, None])[..., 0]
        place_g = (np.clip(score, -_REACH, _REACH) + _REACH) / self.g_step
        place_s = np.clip(sigma / self.sigma_step, 0, _SIGMA_NODES - 1.001)
        cell_g = np.minimum(place_g.astype(np.int64), self.tables.shape[3] - 2)
        cell_s = place_s.astype(np.int64)
        part_g, part_s = place_g - cell_g, place_s - cell_s
        corner = cell_s * self.tables.shape[3] + cell_g
        next_row = corner + self.tables.shape[3]
        near, far = (1 - part_s) * self.rule.share, part_s * self.rule.share
        return [
            (corner, near * (1 - part_g)),
            (corner + 1, near * part_g),
            (next_row, far * (1 - part_g)),
            (next_row + 1, far * part_g),
        ], unit


def _table(sigma: float, grid: Array, n: NDArray[np.int64]) -> Array:
    """The six coefficients (len n, 6, G) at each g, for a query of score deviation sigma."""
    g, weight = normal_nodes(sigma)
    return known_key(HeightNodes(sigma * g, weight, g, np.ones(len(g))), sigma * grid, n)
