"""Bounds on scores, values and weights over a ball of queries, by the law of the tokens.

Everything the uniform bound needs from the tokens, as suprema over |x| <= R that are proved, not
sampled (docs/theory/uniform-convergence.md, section 3). Tokens are centred at their mean, which
changes neither attention's error nor its limit's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.theory.limit import check_ball
from attnlimit.tokens import IndependentForm, SphericalForm, Tokens, symmetric_root

_INTERVALS = 512


@dataclass(frozen=True, eq=False)
class Truncated:
    """What holds for tokens inside the truncation set (everything, for compact tokens)."""

    log_peak: float  # log M: sup of <t, y> - K(t)
    value_radius: float  # v: sup |V (y - mean)|
    score_slope: float  # a: sup |A' (y - mean)|
    escape: float  # P(one token is outside)
    tilted_escape: float  # sup over queries of the same under the tilted law


@dataclass(frozen=True, eq=False)
class Envelope:
    """Suprema over |x| <= R, with t = A x."""

    method: str  # "compact" or "sub-Gaussian"
    radius: float
    log_crowding: float  # log Q: sup of K(2t) - 2K(t)
    spread: float  # kappa: root of sup_w E_2t <w, V (y - grad K(t))>^2
    limit_spread: float  # root of sup_w Var_t <w, V y>
    limit_lipschitz: float  # Lipschitz constant of the limit
    limit_reach: float  # sup |Gamma(x) - V mean|
    parts: tuple[_Part, ...]
    head: Head

    def truncated(self, level: float) -> Truncated:
        """The truncation set where each Gaussian part is kept within tail probability e^-level."""
        R, A, V = self.radius, self.head.A, self.head.V
        log_peaks, values, slopes, escapes, tilted = [], [], [], [], []
        for part in self.parts:
            values.append(part.reach(V) + part.noise_radius(V, level))
            slopes.append(part.reach(A.T) + part.noise_radius(A.T, level))
            log_peaks.append(part.log_peak(self, level))
            escapes.append(part.escape(level))
            tilted.append(part.tilted_escape(self.head, R, level))
        return Truncated(
            log_peak=max(0.0, *log_peaks),
            value_radius=max(values),
            score_slope=max(slopes),
            escape=max(escapes),
            tilted_escape=max(tilted),
        )


@dataclass(frozen=True, eq=False)
class _Part:
    """A component: centre + something bounded + Gaussian noise, relative to the tokens' mean."""

    centre: Array
    cov: Array | None
    bounded: Tokens | None
    weight: float
    log_peak_cap: float  # sup of <t, y> - K(t) where it is known without truncation

    def reach(self, matrix: Array) -> float:
        """Sup |matrix (centre + bounded part)|."""
        centre = float(np.linalg.norm(matrix @ self.centre))
        return centre if self.bounded is None else centre + self.bounded.reach(matrix)

    def noise_radius(self, matrix: Array, level: float) -> float:
        """|matrix z| is below this for the Gaussian part z, but for probability e^-level."""
        if self.cov is None:
            return 0.0
        trace, square, top = _spectrum(matrix @ self.cov @ matrix.T)
        return float(np.sqrt(trace + 2 * np.sqrt(square * level) + 2 * top * level))

    def log_peak(self, envelope: Envelope, level: float) -> float:
        A, R = envelope.head.A, envelope.radius
        plain = R * (self.reach(A.T) + self.noise_radius(A.T, level))
        if self.cov is None or len(envelope.parts) > 1:
            return min(plain, self.log_peak_cap)
        # One Gaussian: <t, y> - K(t) = sigma g - sigma^2/2 with |g| <= rho, sigma <= sigma(R).
        root = symmetric_root(self.cov) @ A
        score_std = R * _norm(root)
        rank = int(np.linalg.matrix_rank(root))
        rho = float(np.sqrt(rank + 2 * np.sqrt(rank * level) + 2 * level))
        whitened = score_std * rho - score_std**2 / 2 if score_std < rho else rho**2 / 2
        return min(plain, whitened)

    def escape(self, level: float) -> float:
        return 0.0 if self.cov is None else 3 * float(np.exp(-level))

    def tilted_escape(self, head: Head, radius: float, level: float) -> float:
        """The tilt moves the Gaussian part by S t: ask how much of the radius is left."""
        if self.cov is None:
            return 0.0
        root = symmetric_root(self.cov) @ head.A
        rank = int(np.linalg.matrix_rank(root))
        whitened = (float(rank), float(rank), 1.0, radius * _norm(root))
        total = _chi_tail(np.sqrt(rank + 2 * np.sqrt(rank * level) + 2 * level), *whitened)
        for matrix in (head.V, head.A.T):
            spectrum = _spectrum(matrix @ self.cov @ matrix.T)
            shift = radius * _norm(matrix @ self.cov @ head.A)
            total += _chi_tail(self.noise_radius(matrix, level), *spectrum, shift)
        return min(1.0, total)


def envelope(head: Head, tokens: Tokens, radius: float) -> Envelope:
    """The envelope of a measure over |x| <= radius; BadInput for tokens with heavier tails."""
    check_ball(head, tokens, radius)
    origin = tokens.mean()
    parts = tuple(_part(weight, part, origin) for weight, part in tokens.parts())
    if all(part.cov is None for part in parts):
        return _compact(head, tokens, radius, parts)
    return _sub_gaussian(head, radius, parts)


def _part(weight: float, tokens: Tokens, origin: Array) -> _Part:
    centre = tokens.mean() - origin
    if tokens.is_gaussian:
        return _Part(centre, tokens.cov(), None, weight, np.inf)
    if tokens.tail.kind == "bounded":
        return _Part(centre, None, tokens, weight, np.inf)
    heavy = tokens.tail.kind == "exponential"
    raise BadInput(
        f"there is no uniform bound for {tokens!r}: its tail is "
        f"{'heavier than Gaussian' if heavy else 'not that of a Gaussian form'}; use bounded "
        "tokens, Gaussian tokens or mixtures of them."
    )


def _compact(head: Head, tokens: Tokens, radius: float, parts: tuple[_Part, ...]) -> Envelope:
    value = max(part.reach(head.V) for part in parts)
    slope = max(part.reach(head.A.T) for part in parts)
    score = radius * slope
    tilt = radius * _norm(head.A)
    worst = _worst_tilt(tokens)
    if worst is not None:
        log_crowding, log_peak, variance, shift = _symmetric(tokens, *worst, tilt)
        log_crowding = min(log_crowding, 2 * float(np.logaddexp(score, -score) - np.log(2)))
        norm = _norm(head.V)
        limit_spread = min(value, norm * np.sqrt(variance))
        shift = min(2 * value, norm * shift)
        lipschitz = norm * variance * _norm(head.A)
    else:
        # Kantorovich: E X^2 / (E X)^2 <= cosh(s)^2 when log X stays within [-s, s].
        log_crowding = 2 * float(np.logaddexp(score, -score) - np.log(2))
        log_peak = score
        cov = head.V @ tokens.cov() @ head.V.T
        limit_spread = min(value, float(np.exp(min(score, 700)) * np.sqrt(_norm(cov))))
        shift = value * min(score, 2.0)
        lipschitz = value * slope
    spread = min(2 * value, float(np.hypot(limit_spread, shift)))
    capped = tuple(_Part(p.centre, None, p.bounded, p.weight, log_peak) for p in parts)
    return Envelope(
        method="compact",
        radius=radius,
        log_crowding=log_crowding,
        spread=spread,
        limit_spread=limit_spread,
        limit_lipschitz=min(lipschitz, value * slope),
        limit_reach=value,
        parts=capped,
        head=head,
    )


def _worst_tilt(tokens: Tokens) -> tuple[int, float] | None:
    """How many equal coordinates the worst tilt has, and how far tokens reach along each.

    Sphere and ball: everything is a function of |t|. Independent coordinates with an edge: sums
    over coordinates of functions that are concave in t_i^2, so equal ones are the worst case.
    """
    match tokens.form:
        case SphericalForm(radius=radius):
            return 1, radius
        case IndependentForm(reach=reach, edge="flat" | "atom"):
            return tokens.dim, reach
    return None


def _symmetric(
    tokens: Tokens, copies: int, edge: float, tilt: float
) -> tuple[float, float, float, float]:
    """Log crowding, log peak, largest tilted variance, largest |grad K(2t) - grad K(t)|."""
    size = tilt / np.sqrt(copies)
    unit = np.eye(tokens.dim)[0]
    once, twice = float(tokens.cgf(size * unit)), float(tokens.cgf(2 * size * unit))
    variance = float(tokens.cov()[0, 0])
    # grad K is monotone along the ray: on an interval the shift is at most its ends' difference.
    grid = np.linspace(0, tilt, _INTERVALS + 1)
    slope = tokens.tilted_mean(np.multiply.outer(grid, unit))[:, 0]
    double = tokens.tilted_mean(np.multiply.outer(2 * grid, unit))[:, 0]
    shift = np.sqrt(copies) * float((double[1:] - slope[:-1]).max())
    return (
        copies * (twice - 2 * once),
        copies * (edge * size - once),
        variance,
        min(shift, variance * tilt),
    )


def _sub_gaussian(head: Head, radius: float, parts: tuple[_Part, ...]) -> Envelope:
    A, V, R = head.A, head.V, radius
    zero = np.zeros((len(A), len(A)))
    covs = [zero if part.cov is None else part.cov for part in parts]
    weights = np.array([part.weight for part in parts])
    average = np.tensordot(weights, np.array(covs), axes=1)
    exponents = [
        2 * R * part.reach(A.T) + R**2 * _top(A.T @ (2 * cov - average) @ A)
        for part, cov in zip(parts, covs, strict=True)
    ]
    spread = limit_spread = score_spread = reach = 0.0
    for part, cov in zip(parts, covs, strict=True):
        noise = _top(V @ cov @ V.T)
        far, near, score = 0.0, 0.0, 0.0
        for other, base in zip(parts, covs, strict=True):
            far = max(far, _gap(part, other, V) + R * _norm(V @ (2 * cov - base) @ A))
            near = max(near, _gap(part, other, V) + R * _norm(V @ (cov - base) @ A))
            score = max(score, _gap(part, other, A.T) + R * _norm(A.T @ (cov - base) @ A))
        spread = max(spread, float(np.sqrt(noise + far**2)))
        limit_spread = max(limit_spread, float(np.sqrt(noise + near**2)))
        score_spread = max(score_spread, float(np.sqrt(_top(A.T @ cov @ A) + score**2)))
        reach = max(reach, part.reach(V) + R * _norm(V @ cov @ A))
    lipschitz = limit_spread * score_spread
    if len(parts) == 1:
        lipschitz = _norm(V @ covs[0] @ A)
    return Envelope(
        method="sub-Gaussian",
        radius=R,
        log_crowding=float(np.logaddexp.reduce(np.log(weights) + exponents)),
        spread=spread,
        limit_spread=limit_spread,
        limit_lipschitz=lipschitz,
        limit_reach=reach,
        parts=parts,
        head=head,
    )


def _gap(part: _Part, other: _Part, matrix: Array) -> float:
    """Largest distance, after `matrix`, between the bounded parts of two components."""
    distance = float(np.linalg.norm(matrix @ (part.centre - other.centre)))
    for tokens in (part.bounded, other.bounded):
        distance += 0.0 if tokens is None else tokens.reach(matrix)
    return distance


def _top(matrix: Array) -> float:
    return max(0.0, float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[-1]))


def _norm(matrix: Array) -> float:
    return float(np.linalg.norm(matrix, 2))


def _spectrum(cov: Array) -> tuple[float, float, float]:
    eigenvalues = np.maximum(np.linalg.eigvalsh(cov), 0)
    return float(eigenvalues.sum()), float((eigenvalues**2).sum()), float(eigenvalues[-1])


def _chi_tail(radius: float, trace: float, square: float, top: float, shift: float) -> float:
    """Laurent and Massart, inverted: P(|z + shift| > radius) for z of the given spectrum."""
    left = max(float(radius) - shift, 0.0) ** 2 - trace
    if left <= 0:
        return 1.0
    if top == 0:
        return 0.0
    root = (np.sqrt(square + 2 * top * left) - np.sqrt(square)) / (2 * top)
    return float(np.exp(-(root**2)))
