"""ScoreLaw: the law of one query's scores, as quadrature nodes carrying the token's moments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlimit.checks import Array


@dataclass(frozen=True, eq=False)
class ScoreLaw:
    """Nodes of the law of s = <t, y>, sorted by score, with E[y | s] and Cov[y | s] at each.

    E[y | s_k] = coefficients[k] @ basis and Cov[y | s_k] = sum_p spread[k, p] spread_cov[p].
    """

    score: Array  # (K,)
    weight: Array  # (K,), sums to one
    coefficients: Array  # (K, r)
    basis: Array  # (r, d)
    spread: Array  # (K, p)
    spread_cov: Array  # (p, d, d)

    @staticmethod
    def build(
        score: Array,
        weight: Array,
        coefficients: Array,
        basis: Array,
        spread: Array | None = None,
        spread_cov: Array | None = None,
    ) -> ScoreLaw:
        """Sort the nodes, normalise the weights; no spread means none."""
        if spread is None or spread_cov is None:
            spread = np.zeros((len(score), 0))
            spread_cov = np.zeros((0, basis.shape[1], basis.shape[1]))
        order = np.argsort(score, kind="stable")
        return ScoreLaw(
            score[order],
            weight[order] / weight.sum(),
            coefficients[order],
            basis,
            spread[order],
            spread_cov,
        )


def resolved_panels(edges_fine: Array, points: int = 16) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on each interval between sorted edges (..., P + 1)."""
    unit, unit_weight = np.polynomial.legendre.leggauss(points)
    half = np.diff(edges_fine)[..., None] / 2
    middle = (edges_fine[..., 1:] + edges_fine[..., :-1])[..., None] / 2
    shape = (*edges_fine.shape[:-1], -1)
    return (middle + half * unit).reshape(shape), (half * unit_weight).reshape(shape)


SCORE_STEP = 0.27
"""Spacing in score that resolves exp(-t e^s): its strip of analyticity has half-width pi/2, so the
trapezoid rule errs by exp(-pi^2 / SCORE_STEP), below 1e-15."""


def standard_normal_grid(score_std: float, step: float | None = None) -> tuple[Array, Array]:
    """Trapezoid nodes and weights for g ~ N(0,1) that resolve exp(-t exp(score_std g)).

    The top end covers the tilts by e^s and e^{2s} (g near score_std and twice that) as far as
    10^15 draws can reach: P(g > 15) < 1e-50.
    """
    step = step or min(0.4, SCORE_STEP / max(score_std, 1e-300))
    top = min(2 * score_std + 10.0, 15.0)
    g = np.arange(-10.0, top + step, step)
    return g, step * np.exp(-(g**2) / 2) / np.sqrt(2 * np.pi)
