"""Queries for a given key: quasi-random, stratified along the one direction that decides its score.

Queries that see a key are rare: they need a score near sqrt(2 log n) deviations. The score of
query z on key g is <z, Bg>, so the rule spreads the component of z along Bg evenly and weighs it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlimit.checks import Array
from attnlimit.theory.moments import WhitenedHead
from attnlimit.tokens.gaussian import normal_rule

_STRATA_REACH = 7.0


@dataclass(frozen=True, eq=False)
class QueryRule:
    """Standard normal queries in antithetic pairs, with components to give them along Bg."""

    white: WhitenedHead
    queries: Array  # (Q, d)
    strata: Array  # (Q,)
    share: Array  # (Q,), of sum one

    @staticmethod
    def of(white: WhitenedHead, count: int, seed: int = 0) -> QueryRule:
        """A rule of about `count` queries."""
        half = normal_rule(len(white.B), max(count // 2, 2), seed)
        order = np.random.default_rng(seed).permutation(len(half))
        strata = _STRATA_REACH * (order + 0.5) / len(half)
        strata = np.concatenate([strata, -strata])
        share = np.exp(-(strata**2) / 2)
        return QueryRule(white, np.concatenate([half, -half]), strata, share / share.sum())

    def tilts(self) -> Array:
        """Tilts (Q, d) of the queries as they are."""
        return self.white.tilts(self.queries)

    def tilts_for(self, g: Array) -> Array:
        """Tilts (m, Q, d) of the queries, stratified along Bg for each whitened key g."""
        direction = g @ self.white.B.T
        direction /= np.maximum(np.linalg.norm(direction, axis=1, keepdims=True), 1e-300)
        moved = (self.strata[:, None] - self.queries @ direction.T).T
        return self.tilts() + moved[..., None] * (direction @ self.white.B)[:, None, :]
