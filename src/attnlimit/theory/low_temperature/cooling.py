"""How sharp should n tokens' scores be made to find the furthest token, and how well can they?

Attention with scores lam <A x, y> over n tokens, against what infinitely sharp scores over
infinitely many tokens give: too small a `lam` is biased, too large a one listens to one token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv, betaln

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.result import table
from attnlimit.theory.limit import check_match
from attnlimit.theory.low_temperature.hardmax import RootError, hardmax_target
from attnlimit.theory.one_query.gaussian import MAX_SIGMA
from attnlimit.theory.one_query.pointwise import integrate_score_law, pointwise_error
from attnlimit.tokens import GaussianForm, IndependentForm, ScoreLaw, SphericalForm, Tokens
from attnlimit.tokens.score_law import resolved_panels

SHARP = 300.0
"""Past this score range on a sphere only the cap that n tokens reach is given nodes."""
_MAX_CAP_SCORE = 20_000.0


@dataclass(frozen=True, eq=False)
class CoolingError(RootError):
    """Error of attention with scores scaled by lam over n tokens, against the exposed point.

    For Gaussian tokens the output is divided by sqrt(2 log n), as in `hardmax_error`.
    """

    lam: Array  # (L,)
    n: NDArray[np.int64]  # (N,)
    target: Array  # (m, d_v)
    mse: Array  # (m, L, N)         E |Gamma_n^lam / scale - target|^2
    limit_error: Array  # (m, L, N)  the same with infinitely many tokens: a bias
    scale: Array  # (N,)

    def headline(self) -> str:
        return "attention with sharpened scores against the hard maximum"

    def to_frame(self) -> pd.DataFrame:
        """One row for each query, lam and n."""
        return table(
            query=np.arange(len(self.mse))[:, None, None],
            lam=self.lam[:, None],
            n=self.n,
            mse=self.mse,
            root=self.root,
            limit_error=self.limit_error,
        )


def cooling_error(
    head: Head, tokens: Tokens, x: ArrayLike, lam: ArrayLike, n: ArrayLike
) -> CoolingError:
    """Exact error of attention with scores `lam` <A x, y> over `n` tokens, for every pair.

    The target is the exposed point V extreme(A x) of bounded tokens, and the direction that
    `hardmax_error` compares with for Gaussian ones; `limit_error` is what is left at n = infinity
    ((d-1)/(2 lam |A x|) on the unit sphere, for large lam).
    """
    check_match(head, tokens)
    counts = checks.token_list(n)
    factors = np.atleast_1d(checks.real_array(lam, "lam"))
    if factors.ndim > 1:
        raise BadInput(f"lam must be a list of numbers, but its shape is {factors.shape}.")
    if (factors <= 0).any():
        raise BadInput(f"lam must be positive, got {factors.min():g}.")
    queries = checks.query_rows(x, head.query_dim)
    tilts = head.tilts(queries)
    if not (np.linalg.norm(tilts, axis=1) > 0).all():
        raise BadInput("A x is zero at a query, so all scores are equal; leave that query out.")
    scale = np.ones(len(counts))
    if tokens.is_gaussian:
        scale = np.sqrt(2 * np.log(counts.astype(np.float64)))
    targets = np.stack([hardmax_target(head, tokens, t) for t in tilts])
    mse = np.empty((len(queries), len(factors), len(counts)))
    limit_error = np.empty_like(mse)
    for i, query in enumerate(queries):
        for j, factor in enumerate(factors):
            bias, variance = _moments(head, tokens, query, float(factor), counts)
            limit = tokens.tilted_mean(factor * tilts[i]) @ head.V.T
            shift = limit / scale[:, None] - targets[i]
            mse[i, j] = ((bias / scale[:, None] + shift) ** 2).sum(axis=1) + variance / scale**2
            limit_error[i, j] = np.linalg.norm(shift, axis=1)
    return CoolingError(factors, counts, targets, mse, limit_error, scale)


def sharpest(head: Head, tokens: Tokens, x: Array, n: int) -> float:
    """A lam so large that the best of n tokens takes all the weight, or as far as laws reach."""
    t, form = head.tilts(x), tokens.form
    score_std = float(np.linalg.norm(tokens.sqrt_cov() @ t))
    if not score_std > 0:
        raise BadInput("the scores of a query do not vary over these tokens; leave that query out.")
    if isinstance(form, GaussianForm):
        return min(MAX_SIGMA, 8 * np.sqrt(2 * np.log(n))) / score_std
    if isinstance(form, SphericalForm) and form.radial_dim > 1:
        half = (form.radial_dim - 1) / 2
        # From the best token to the next the gap grows by a factor of about 1 + 1/half.
        kappa = 6 * half / (2 * float(betaincinv(half, half, 1 / n)))
        return kappa / (form.radius * float(np.linalg.norm(t)))
    return (20 if isinstance(form, IndependentForm) else 60) / score_std


def _moments(
    head: Head, tokens: Tokens, x: Array, lam: float, n: NDArray[np.int64]
) -> tuple[Array, Array]:
    """E Gamma_n - Gamma, and the trace of Gamma_n's covariance, with scores scaled by lam."""
    t, form = lam * head.tilts(x), tokens.form
    size = float(np.linalg.norm(t))
    if isinstance(form, SphericalForm) and form.radial_dim > 1 and form.radius * size > SHARP:
        limit = tokens.tilted_mean(t) @ head.V.T
        mse, bias, _, _ = integrate_score_law(cap_law(form, t, n), head.V, limit, n)
        return bias, mse - (bias**2).sum(axis=1)
    exact = pointwise_error(head.scaled(lam), tokens, x, n)
    return exact.bias[0], exact.mse[0] - (exact.bias[0] ** 2).sum(axis=1)


def cap_law(form: SphericalForm, t: Array, n: NDArray[np.int64]) -> ScoreLaw:
    """Score law with nodes only in the cap that matters; all the mass below is one node.

    Some of the fewest n tokens are in the cap of probability 25/n but for probability e^-25, and
    a token whose score is 150 below that cap's edge has no weight.
    """
    half = (form.radial_dim - 1) / 2
    norm = float(np.linalg.norm(t))
    kappa = form.radius * norm
    few, many = float(n.min()), float(n.max())
    first = 2 * float(betaincinv(half, half, 1e-18 / many))
    typical = 2 * float(betaincinv(half, half, min(25 / few, 1 - 1e-9)))
    last = min(typical + 150 / kappa, 2.0)
    if kappa * last > _MAX_CAP_SCORE:
        raise BadInput(
            f"scores spread over {kappa * last:.3g} among the best of n = {few:.0f} tokens: "
            "attention is a hard maximum there, use hardmax_error."
        )
    edges = [first]
    ratio = np.expm1(min(1.5 / half, 1.0))
    while edges[-1] < last:
        edges.append(edges[-1] + min(ratio * edges[-1], 2 / kappa))
    edges[-1] = last
    gap, width = resolved_panels(np.array(edges))
    log_density = (half - 1) * np.log(gap * (2 - gap) / 4) - betaln(half, half) - np.log(2)
    weight = width * np.exp(log_density)
    rest = float(1 - betainc(half, half, last / 2))
    gap, weight = np.append(gap, last), np.append(weight, rest)
    unit = t / norm
    across = form.radius**2 * gap * (2 - gap) / (form.radial_dim - 1)
    return ScoreLaw.build(
        score=-kappa * gap,  # counted from the top: kappa itself may be too large to add
        weight=weight,
        coefficients=form.radius * (1 - gap)[:, None],
        basis=unit[None],
        spread=across[:, None],
        spread_cov=(np.eye(len(t)) - np.outer(unit, unit))[None],
    )
