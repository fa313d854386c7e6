"""Laplace tables for tokens with independent coordinates, by Mellin inversion of their CGF.

    e^{-w} = (1/2 pi i) int Gamma(-z) w^z dz,      w = e^{s - alpha},

turns E[e^{-w}] into a line integral of Gamma(-z) e^{-z alpha} M(z), with M(z) = E e^{zs} a product
over coordinates, and E[y e^{zs}] = M(z) grad K(z t). Gamma decays like e^{-pi |Im z| / 2}, so the
line is short whatever the law of the score, atoms included (docs/theory/exact-law.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import loggamma

from attnlimit.checks import Array
from attnlimit.errors import BadInput, NoLimitError
from attnlimit.theory.one_query.quadrature import EXACT, LaplaceTable, log_phi
from attnlimit.tokens import IndependentForm, Tokens

_LINES = (-12.0, -6.0, -3.0, -1.5, -0.75, -0.3, 0.3, 0.5, 0.7, 1.3, 1.5, 1.7)
"""Real parts c of the lines; never near the poles of Gamma at 0, 1 and 2."""
_HEIGHT = 27.0  # |Gamma| has fallen by 1e-18 there
_MAX_PERIOD = 2.5e3


def tabulate_product(
    tokens: Tokens, form: IndependentForm, t: Array, values: Array, n: NDArray[np.int64]
) -> LaplaceTable:
    """The table of the score <t, y>, with linear moments of u = values (y - grad K(t)).

    `quadratic` is the single column |u|^2. For each alpha the line Re z = c is chosen where the
    integrand is smallest, which keeps relative accuracy in both tails.
    """
    centre = tokens.tilted_mean(t)
    log_mean_weight = float(tokens.cgf(t))
    reach = _score_reach(tokens, form.reach, t)
    low, high = -reach - 6, reach + 2 * np.log(float(n.max())) + 40
    period = 2 * (high - low) + 80
    if period > _MAX_PERIOD:
        raise BadInput(
            f"scores reach {reach:.3g}, too far for the exact law of independent coordinates; "
            "use hardmax_error, or a smaller scale."
        )
    alpha = np.arange(low, high, EXACT.step)
    omega = np.arange(0, _HEIGHT, 2 * np.pi / period)
    share = np.full(len(omega), 2 / period)
    share[0] /= 2

    lines, real_cgf = _usable_lines(tokens, t)
    orders = np.arange(3)[:, None, None]
    log_size = np.real(loggamma(orders - lines + 0j)) + real_cgf - np.multiply.outer(alpha, lines)
    choice = log_size.argmin(axis=2)

    gram = values.T @ values
    one_minus_phi, mass, square, quadratic = (np.empty(len(alpha)) for _ in range(4))
    linear = np.empty((len(alpha), len(values)))
    for index, c in enumerate(lines):
        z = c + 1j * omega
        argument = z[:, None] * t
        log_moment = form.cgf(argument).sum(axis=1)
        shift = form.mean(argument) - centre
        spread = form.var(argument) @ np.diag(gram)
        energy = np.einsum("zi,ij,zj->z", shift, gram, shift, optimize=True) + spread
        for order, rows in enumerate(choice):
            chosen = np.flatnonzero(rows == index)
            if len(chosen) == 0:
                continue
            exponent = loggamma(order - z) + log_moment - np.multiply.outer(alpha[chosen], z)
            kernel = share * np.exp(exponent)
            plain = np.real(kernel.sum(axis=1))
            # Past the pole at z = 1 the line misses its residue E w; past z = 0 it misses 1.
            mean_weight = np.exp(log_mean_weight - alpha[chosen]) if c > 1 else 0.0
            if order == 0:
                one_minus_phi[chosen] = float(c < 0) - plain + mean_weight
            elif order == 1:
                mass[chosen] = plain + mean_weight
                linear[chosen] = np.real(kernel @ shift) @ values.T
            else:
                square[chosen] = plain
                quadratic[chosen] = np.real(kernel @ energy)
    return LaplaceTable(
        log_phi=log_phi(np.maximum(one_minus_phi, 0.0)),
        mass=mass,
        linear=linear,
        square=square,
        quadratic=quadratic[:, None],
    )


def _score_reach(tokens: Tokens, reach: float, t: Array) -> float:
    """How far from zero the scores can matter: Chernoff's bound at 1e-30, or the support."""
    support = reach * float(np.abs(t).sum())
    best = np.inf
    for c in 2.0 ** np.arange(-12, 8):
        try:
            best = min(best, (float(tokens.cgf(c * t)) + 100) / c)
        except NoLimitError:
            break
    return min(support, best)


def _usable_lines(tokens: Tokens, t: Array) -> tuple[Array, Array]:
    """The lines where the CGF is finite, and its value there."""
    lines, cgfs = [], []
    for c in _LINES:
        try:
            cgfs.append(float(tokens.cgf(c * t)))
        except NoLimitError:
            continue
        lines.append(c)
    return np.array(lines), np.array(cgfs)
