"""Where do the three limit laws of a query on the sphere hold, at a finite number of keys?

Scores beta <x, y> for a unit x and n keys y uniform on a sphere, beta a multiple theta of the
critical scale beta* ~ n^(2/(d-1)): exactly at every n, and by the laws of many keys, of the nearest
few, and of the nearest one (docs/theory/critical-temperature.md). In high dimension n keys do not
come near the query, and the law with the exponent and scale of the gap that they do reach is used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, betaln

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.picture import REFERENCE, Panel, Series
from attnlimit.result import Pictured, Result, table
from attnlimit.theory.low_temperature.cooling import SHARP, cap_law
from attnlimit.theory.low_temperature.critical import (
    CriticalLaw,
    averaging_law,
    critical_law,
    nearest_law,
)
from attnlimit.theory.low_temperature.hardmax import typical_gap
from attnlimit.theory.one_query.pointwise import integrate_score_law
from attnlimit.tokens import SphericalForm, Tokens

LAWS = ("averaging", "critical", "nearest", "adapted")
_NEAR = 0.1


@dataclass(frozen=True, eq=False)
class SphereRegimes(Result, Pictured):
    """Attention over n keys on a sphere at theta times the critical inverse temperature.

    `participation` is E sum p^2, `error` the root of E |Gamma_n - r x|^2 for the values y
    themselves; both exact. The laws as n grows are in `averaging`, `critical` and `nearest`;
    `adapted` is the critical one with the local exponent at the gap that n keys reach.
    """

    n: NDArray[np.int64]  # (N,)
    theta: Array  # (T,)
    beta: Array  # (T, N)
    participation: Array  # (T, N)
    error: Array  # (T, N)
    averaging: CriticalLaw  # (T, 1): many keys
    critical: CriticalLaw  # (T, 1): Poisson points
    nearest: CriticalLaw  # (T, 1): one key
    adapted: CriticalLaw  # (T, N)
    radius: float
    sides: float  # share of the directions across x that the tokens keep; 1 on a sphere

    def law_error(self, name: str) -> Array:
        """Root mean squared error (T, N) by the limit law of that name."""
        law: CriticalLaw = getattr(self, checks.one_of(name, LAWS, "name"))
        kappa = self.beta * self.radius
        along = (law.gap**2 + law.gap_variance) / kappa**2
        across = self.sides * law.across / kappa
        if name == "adapted":  # a gap g that is not small is 2g - g^2 to the side, squared
            across = across * np.maximum(1 - law.gap / (2 * kappa), 0.0)
        return np.asarray(self.radius * np.sqrt(along + across))

    @property
    def regime(self) -> NDArray[np.str_]:
        """Which law is within a tenth of the critical one at each theta: of many or of one key."""
        share = self.critical.participation[:, 0]
        many = np.abs(self.averaging.participation[:, 0] / share - 1) < _NEAR
        return np.where(many, "averaging", np.where(share > 1 - _NEAR, "nearest", "critical"))

    def headline(self) -> str:
        a = float(self.critical.exponent.flat[0])
        return f"keys on a sphere near the critical temperature (local exponent {a:g})"

    def panel(self) -> Panel:
        """Participation against theta: exact at each n, and the critical law."""
        lines = [
            Series(self.theta, self.participation[:, i], "line", f"n = {n}, exact", f"n = {n}")
            for i, n in enumerate(self.n)
        ]
        limit = Series(self.theta, self.critical.participation[:, 0], "dashed", "n → ∞", REFERENCE)
        title = f"local exponent {self.critical.exponent.flat[0]:g}"
        return Panel(title, "θ = β / β*", "participation E Σ p²", [*lines, limit])

    def to_frame(self) -> pd.DataFrame:
        """One row for each theta and n."""
        columns = {
            "regime": self.regime[:, None],
            "theta": self.theta[:, None],
            "n": self.n,
            "beta": self.beta,
            "participation": self.participation,
        }
        for name in LAWS:
            columns[f"{name}_participation"] = getattr(self, name).participation
        columns["error"] = self.error
        for name in LAWS:
            columns[f"{name}_error"] = self.law_error(name)
        return table(**columns)


def sphere_regimes(tokens: Tokens, n: ArrayLike, theta: ArrayLike) -> SphereRegimes:
    """Compare attention over `n` keys near the critical temperature with its limit laws.

    Parameters
    ----------
    tokens : Sphere or Ball
        The keys, which are the values too; the query is any unit vector.
    n : sequence of int
        Numbers of keys.
    theta : sequence of float
        Inverse temperatures as multiples of beta* = (n/c)^(2/(d-1)) / r, at which one key is
        expected within 1/beta* of the best possible score.
    """
    form = tokens.form
    if not isinstance(form, SphericalForm) or form.radial_dim < 2:
        raise BadInput(
            "tokens must be a Sphere or a Ball, whose critical temperature is known, not "
            f"{tokens!r}."
        )
    counts = checks.token_list(n)
    ratio = np.atleast_1d(checks.real_array(theta, "theta"))
    half = (form.radial_dim - 1) / 2
    column = ratio[:, None]
    critical = critical_law(half, column)
    beta = column / (form.radius * typical_gap(form, counts))
    gap, exponent = _reached(half, counts)
    exact = np.array(
        [[_exact(tokens, form, *pair) for pair in zip(row, counts, strict=True)] for row in beta]
    )
    return SphereRegimes(
        n=counts,
        theta=ratio,
        beta=beta,
        participation=exact[..., 0],
        error=np.sqrt(exact[..., 1]),
        averaging=averaging_law(half, column),
        critical=critical,
        nearest=nearest_law(half, column),
        adapted=critical_law(exponent, beta * form.radius * gap),
        radius=form.radius,
        sides=(tokens.dim - 1) / (form.radial_dim - 1),
    )


def _reached(half: float, n: NDArray[np.int64]) -> tuple[Array, Array]:
    """Gap within which one of n keys is expected, and d log P(gap < g) / d log g there."""
    gap = 2 * betaincinv(half, half, 1 / n)
    density = np.exp((half - 1) * np.log(gap * (2 - gap) / 4) - betaln(half, half)) / 2
    return gap, gap * density * n


def _exact(tokens: Tokens, form: SphericalForm, beta: float, n: np.int64) -> tuple[float, float]:
    """E sum p^2 and E |Gamma_n - r x|^2, the latter against the best point of all."""
    t = beta * np.eye(tokens.dim)[0]
    counts = np.array([n])
    sharp = beta * form.radius > SHARP
    law = cap_law(form, t, counts) if sharp else tokens.score_law(t)
    assert law is not None
    mse, _, participation, _ = integrate_score_law(
        law, np.eye(tokens.dim), tokens.extreme(t), counts
    )
    return float(participation[0]), float(mse[0])
