"""First-order law of the outputs' covariance, and the size of its next order.

All n tokens are queries and keys. With psi_S the influence of a token on the covariance,

    E|Cov_n - Cov|_F^2 = C / n + D_n,    C = E|psi_S(y)|_F^2,    D_n of order 1/n^2.

C is a closed form for Gaussian tokens, a sum for finitely many and a quasi-random average for
others. D_n is estimated from one and two tokens put among n - 1 or n - 2 expected ones: with
h(x) and h(x, y) the changes of the covariance that these make, exact in n,

    D_n = |n E h|^2 + (n E|h - Eh|^2 - C/n) + n(n-1) E<h(x) + h(y) - 2 Eh + g/2, g>,
    g = h(x, y) - h(x) - h(y),

the terms of Hoeffding's decomposition up to 1/n^2 (docs/theory/moments.md). It is not added to the
prediction: it is the stated error, and where it passes 30 % the prediction is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.theory.limit import check_limit, limit
from attnlimit.theory.moments import WhitenedHead, check_reach, normal_mixture
from attnlimit.tokens import Tokens

LARGEST_ERROR = 0.3
"""Next order over first order, from which on the first order is refused."""
_TOKENS = 128
_QUERIES = 2048
_ENERGY_TOKENS = 1024
_FARTHER = 10
_ROUNDING = 1e-12
_LARGEST_N = 100_000
"""Differences are lost to rounding at larger n, where the next order falls like 1/n^2."""


@dataclass(frozen=True, eq=False)
class FirstOrderCovariance:
    """C/n for each n, and its error: the next order, with the quadrature's own."""

    n: NDArray[np.int64]
    mse: Array
    numerical_error: Array


@dataclass(frozen=True, eq=False)
class TokenResponses:
    """Queries that stand for a token distribution, and tokens to put among them."""

    weights: Array  # (Q,): of the queries, of sum one
    limits: Array  # (Q, c): their outputs over infinitely many tokens
    log_ratios: Array  # (Q, M): <Ax, y> - K(Ax) of each token
    probabilities: Array  # (M,): of the tokens, of sum one
    values: Array  # (M, c)
    own_limits: Array  # (M, c): limits of the tokens as queries
    own_log_ratios: Array  # (M, M): of the tokens as queries (rows) on the tokens

    def influences(self) -> Array:
        """psi_S of each token, (M, c, c).

        psi_S(y) = (Gamma(y) - m)(Gamma(y) - m)' - S + 2 sym E_x[e^{<Ax,y> - K(Ax)} (Vy - Gamma(x))
        (Gamma(x) - m)'], with m and S mean and covariance of the limit's outputs.
        """
        mean = self.weights @ self.limits
        centred, own = self.limits - mean, self.own_limits - mean
        covariance = (self.weights * centred.T) @ centred
        weighted = self.weights[:, None] * np.exp(np.minimum(self.log_ratios, 700.0))
        size = self.values.shape[1]
        products = (self.limits[:, :, None] * centred[:, None, :]).reshape(-1, size**2)
        as_key = self.values[:, :, None] * (weighted.T @ centred)[:, None, :]
        as_key -= (weighted.T @ products).reshape(-1, size, size)
        own_part = own[:, :, None] * own[:, None, :] - covariance
        return np.asarray(own_part + as_key + np.swapaxes(as_key, 1, 2))

    def covariance(self, added: Sequence[int], n: float) -> Array:
        """Covariance of the outputs where the `added` tokens are 1/n of all tokens each."""
        index = list(added)
        rest = 1 - len(index) / n
        limits = np.concatenate([self.limits, self.own_limits[index]])
        ratios = [self.log_ratios[:, index], self.own_log_ratios[np.ix_(index, index)]]
        share = np.exp(np.minimum(np.concatenate(ratios), 690.0)) / n
        mass = rest + share.sum(axis=1)
        outputs = (rest * limits + share @ self.values[index]) / mass[:, None]
        weights = np.concatenate([rest * self.weights, np.full(len(index), 1 / n)])
        centred = outputs - weights @ outputs
        return np.asarray((weights * centred.T) @ centred)

    def next_order(self, psi: Array, n: int) -> tuple[float, float]:
        """D_n and its standard error over the tokens; `psi` are the influences."""
        base = self.covariance((), n)
        count = len(self.values)
        alone = np.stack([self.covariance((k,), n) for k in range(count)]) - base
        beyond = n * alone - psi  # E psi = 0: this has the mean of n h and less noise
        bias = np.tensordot(self.probabilities, beyond, 1)
        centred, first = alone - bias / n, psi - np.tensordot(self.probabilities, psi, 1)
        single = n * _squares(centred) - _squares(first) / n
        order = np.random.default_rng(0).permutation(count)
        # Pairs are as probable as their tokens together, but for the tokens' own weights.
        pairs, probabilities = np.empty(count), np.empty(count)
        far = _FARTHER * n
        alone_far = np.stack([self.covariance((k,), far) for k in range(count)]) - base
        for k, (x, y) in enumerate(zip(order, np.roll(order, 1), strict=True)):
            met = self.covariance((x, y), n) - base - alone[x] - alone[y]
            met_far = self.covariance((x, y), far) - base - alone_far[x] - alone_far[y]
            # The bilinear part of `met` averages to zero over either token: leave it out.
            bent = (met - _FARTHER**2 * met_far) / (1 - 1 / _FARTHER)
            both = ((centred[x] + centred[y]) * bent).sum() + (met**2).sum() / 2
            pairs[k] = n * (n - 1) * float(both)
            probabilities[k] = count * self.probabilities[x] * self.probabilities[y]
        value = self.probabilities @ single + probabilities @ pairs + float((bias**2).sum())
        spread = np.sqrt(
            self.probabilities**2 @ (single - self.probabilities @ single) ** 2
            + probabilities**2 @ (pairs - probabilities @ pairs) ** 2
        )
        return float(value), float(spread)


def covariance_first_order(
    head: Head, tokens: Tokens, n: NDArray[np.int64]
) -> FirstOrderCovariance:
    """First-order law of E|Cov_n - Cov|_F^2 for n tokens that are queries and keys.

    Raises
    ------
    BadInput
        Where C is infinite (horizon 1 or more), and at n whose next order passes 30 % of C/n.
    """
    check_limit(head, tokens)
    own_error = 0.0
    if tokens.is_gaussian:
        white = WhitenedHead.of(head, tokens)
        energy = gaussian_covariance_energy(white)
        if not np.isfinite(energy):
            raise BadInput(
                "the first-order variance of the covariance error is infinite at a horizon of 1 or "
                'more; use measure(head, tokens, "covariance", n, replicates).'
            )
        samples = [_gaussian_responses(white, seed) for seed in (0, 1)]
    elif (atoms := tokens.atoms()) is not None:
        points, weights = atoms
        scores = head.tilts(points) @ points.T
        energy, samples = population_responses(scores, points @ head.V.T, weights)
    else:
        energy, own_error = _quasi_energy(head, tokens)
        samples = [_quasi_responses(head, tokens, seed) for seed in (0, 1)]
    return _first_order(energy, own_error, samples, n)


def population_responses(
    scores: Array, values: Array, weights: Array
) -> tuple[float, list[TokenResponses]]:
    """C and samples for finitely many tokens of scores (N, N) and values (N, d_v)."""
    size = len(values)

    def responses(chosen: NDArray[np.int64], probabilities: Array) -> TokenResponses:
        own = ratios[np.ix_(chosen, chosen)]
        return TokenResponses(
            weights, limits, ratios[:, chosen], probabilities, values[chosen], limits[chosen], own
        )

    largest = scores.max(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        normaliser = np.log(np.exp(scores - largest) @ weights)[:, None] + largest
    ratios = scores - normaliser
    limits = (np.exp(ratios) * weights) @ values
    energy, block = 0.0, max(1, 2**24 // (size * values.shape[1] ** 2 + 1))
    for start in range(0, size, block):
        some = np.arange(start, min(start + block, size))
        part = responses(some, weights[some])
        energy += float(weights[some] @ _squares(part.influences()))
    if size <= _TOKENS:
        return energy, [responses(np.arange(size), weights)]
    samples = []
    for seed in (0, 1):
        places = (np.arange(_TOKENS) + np.random.default_rng(seed).random()) / _TOKENS
        chosen = np.searchsorted(np.cumsum(weights), places * weights.sum())
        probabilities = np.full(_TOKENS, 1 / _TOKENS)
        samples.append(responses(np.minimum(chosen, size - 1), probabilities))
    return energy, samples


def gaussian_covariance_energy(white: WhitenedHead) -> float:
    """C = E|psi_S|_F^2 for Gaussian tokens; infinite at a horizon of 1 or more.

    psi_S = G T + R: T = k m' + m k' - 2 S1, R = a a' - S0, with k = VP(g - o), m = VQP(g - o),
    a = VB'g, P = (I + Q)^{-1}, S1 = VQPV', S0 = VQV', and G^j times the normal density is
    a normal density again, of precision (1 - j) I + j P. So C is a sum of fourth moments.
    """
    Q, V, offset = white.tilt_cov, white.values, white.offset
    if np.linalg.eigvalsh(Q)[-1] >= 1:
        return np.inf
    dim = len(Q)
    P = _inverse(np.eye(dim) + Q)
    away = np.concatenate([-offset[:, None], np.eye(dim)], axis=1)  # g - o from (1, g)
    key, moved = V @ P @ away, V @ Q @ P @ away
    shown = np.concatenate([np.zeros((len(V), 1)), V @ white.B.T], axis=1)
    spread, own = V @ Q @ P @ V.T, V @ Q @ V.T
    _, normal = _tilted_normal(P, offset, 0)
    _, once = _tilted_normal(P, offset, 1)
    mass, twice = _tilted_normal(P, offset, 2)
    both = key.T @ moved
    square = 2 * twice.fourth(key.T @ key, moved.T @ moved) + 2 * twice.fourth(both, both)
    square += -8 * twice.second(key.T @ spread @ moved) + 4 * float((spread**2).sum())
    cross = 2 * once.fourth(key.T @ shown, moved.T @ shown) - 2 * once.second(key.T @ own @ moved)
    cross += -2 * once.second(shown.T @ spread @ shown) + 2 * float((spread * own).sum())
    alone = normal.fourth(shown.T @ shown, shown.T @ shown)
    alone += -2 * normal.second(shown.T @ own @ shown) + float((own**2).sum())
    return mass * square + 2 * cross + alone


@dataclass(frozen=True, eq=False)
class _AffineNormal:
    """Moments of quadratic forms of (1, g), g normal."""

    mean: Array  # (1 + d,)
    covariance: Array  # (1 + d, 1 + d)

    def second(self, form: Array) -> float:
        """E x'Fx."""
        return float((form * self.covariance).sum() + self.mean @ form @ self.mean)

    def fourth(self, form: Array, other: Array) -> float:
        """E (x'Fx)(x'Hx), by Isserlis' theorem."""
        F, H = (form + form.T) / 2, (other + other.T) / 2
        turned = F @ self.covariance
        joint = 2 * float((turned * (H @ self.covariance).T).sum())
        joint += 4 * float(self.mean @ turned @ H @ self.mean)
        return self.second(F) * self.second(H) + joint


def _tilted_normal(P: Array, offset: Array, power: int) -> tuple[float, _AffineNormal]:
    """Mass and moments of the standard normal density times G^power."""
    dim = len(P)
    precision = (1 - power) * np.eye(dim) + power * P
    covariance = _inverse(precision)
    centre = power * covariance @ P @ offset
    log_mass = power * np.linalg.slogdet(P)[1] / 2 - np.linalg.slogdet(precision)[1] / 2
    log_mass += (centre @ precision @ centre - power * offset @ P @ offset) / 2
    full = np.zeros((dim + 1, dim + 1))
    full[1:, 1:] = covariance
    mass = float(np.exp(min(log_mass, 700.0)))
    return mass, _AffineNormal(np.append(1.0, centre), full)


def _gaussian_responses(white: WhitenedHead, seed: int) -> TokenResponses:
    """Queries and tokens, half of each from the normal law that carries C."""
    Q, B, offset = white.tilt_cov, white.B, white.offset
    dim = len(Q)
    identity = np.eye(dim)
    P, R = _inverse(identity + Q), _inverse(identity + B @ B.T)
    wide = _inverse(2 * P - identity)
    centre = 2 * wide @ P @ offset
    g, probabilities = normal_mixture(dim, _TOKENS, 11 + seed, centre, wide)
    seen = R @ B @ wide @ B.T @ R + R
    z, weights = normal_mixture(dim, _QUERIES, seed, R @ B @ (centre - offset), seen)
    tilts, own = white.tilts(z), white.tilts(g)
    return TokenResponses(
        weights,
        tilts @ white.values.T,
        tilts @ g.T - (tilts**2).sum(axis=1)[:, None] / 2,
        probabilities,
        g @ white.values.T,
        own @ white.values.T,
        own @ g.T - (own**2).sum(axis=1)[:, None] / 2,
    )


def _quasi_responses(
    head: Head, tokens: Tokens, seed: int, count: int = _TOKENS, rule: int = 11
) -> TokenResponses:
    """Quasi-random queries and tokens."""
    (queries, weights), (points, probabilities) = (
        tokens.rule(_QUERIES, seed),
        tokens.rule(count, rule + seed),
    )
    tilts, own = head.tilts(queries), head.tilts(points)
    check_reach(tokens, own, queries, weights)
    output = limit(head, tokens)
    return TokenResponses(
        weights,
        output(queries),
        tilts @ points.T - tokens.cgf(tilts)[:, None],
        probabilities,
        points @ head.V.T,
        output(points),
        own @ points.T - tokens.cgf(own)[:, None],
    )


def _quasi_energy(head: Head, tokens: Tokens) -> tuple[float, float]:
    """C and its error: products of two rules of queries are free of the rules' own noise."""
    rules = [_quasi_responses(head, tokens, seed, _ENERGY_TOKENS, 6 - seed) for seed in range(3)]
    probabilities, psi = rules[0].probabilities, [rule.influences() for rule in rules]
    products = np.array([(psi[k] * psi[k - 1]).sum(axis=(1, 2)) for k in range(3)])
    energy = float((products @ probabilities).mean())
    spread = np.sqrt(probabilities**2 @ (products.mean(axis=0) - energy) ** 2)
    return max(energy, 0.0), float(np.hypot(spread, (products @ probabilities).std()))


def _first_order(
    energy: float, own_error: float, samples: list[TokenResponses], n: NDArray[np.int64]
) -> FirstOrderCovariance:
    """C/n with its error, or BadInput naming the smallest n."""
    counts = n.astype(np.float64)
    influences = [sample.influences() for sample in samples]
    missed = 0.0  # what the sampled tokens do not have of C
    for sample, psi in zip(samples, influences, strict=True):
        squares = _squares(psi)
        reached = float(sample.probabilities @ squares)
        spread = float(np.sqrt(sample.probabilities**2 @ (squares - reached) ** 2))
        missed = max(missed, abs(reached - energy) - 3 * spread)

    @cache
    def next_order(at: int) -> float:
        parts = [s.next_order(p, at) for s, p in zip(samples, influences, strict=True)]
        return max(abs(value) + spread for value, spread in parts)

    def error(count: int) -> float:
        at = min(count, _LARGEST_N)
        return next_order(at) * (at / count) ** 2 + (max(missed, 0.0) + own_error) / count

    nodes = np.unique([n.min(), round(float(np.sqrt(n.min() * n.max()))), n.max()])
    scaled = np.array([error(int(count)) * float(count) ** 2 for count in nodes])
    below = np.searchsorted(nodes, n, side="right") - 1
    errors = np.maximum(scaled[below], scaled[np.searchsorted(nodes, n)]) / counts**2
    size = max(float(sample.probabilities @ (sample.values**2).sum(axis=1)) for sample in samples)
    if not (errors <= LARGEST_ERROR * energy / counts + (_ROUNDING * size) ** 2).all():
        smallest = None  # of C = 0 nothing but the next orders is left, at any n
        if energy > 0:
            smallest = _smallest(lambda count: error(count) * count / energy, int(n.min()))
        known = "here at no n" if smallest is None else f"from n = {smallest} on here"
        raise BadInput(
            f"the covariance error is known to first order only, {known}; "
            "use measure for smaller n."
        )
    return FirstOrderCovariance(n, energy / counts, errors)


def _smallest(relative: Callable[[int], float], start: int) -> int | None:
    """An n at which the next order is just small enough: it falls like 1/n."""
    n = start
    for _ in range(12):
        size = relative(n)
        if size <= LARGEST_ERROR:
            digits = 10 ** max(len(str(n)) - 2, 0)
            return -(-n // digits) * digits
        n = int(np.ceil(n * min(max(1.05 * size / LARGEST_ERROR, 1.1), 1e3)))
        if n > checks.MAX_TOKENS:
            return None
    return None


def _squares(matrices: Array) -> Array:
    """Squared Frobenius norms of (M, c, c)."""
    return np.asarray((matrices**2).sum(axis=(1, 2)))


def _inverse(matrix: Array) -> Array:
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)
