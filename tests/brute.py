"""Brute force in plain numpy, without the package: means over independent draws, and errors."""

import numpy as np
from scipy.special import ive, logsumexp


class Mixture:
    def __init__(self, weights, means, covs):
        self.weights, self.means, self.covs = map(np.asarray, (weights, means, covs))
        values, vectors = np.linalg.eigh(self.covs)
        self.roots = vectors * np.sqrt(np.maximum(values, 0))[:, None]

    def sample(self, shape, rng):
        label = rng.choice(len(self.weights), size=shape, p=self.weights)[..., None]
        normal = rng.standard_normal((*shape, self.means.shape[1]))
        parts = enumerate(zip(self.means, self.roots, strict=True))
        return sum((label == k) * (mean + normal @ root.T) for k, (mean, root) in parts)

    def log_parts(self, tilts):
        moved = np.einsum("ti,kij->tkj", tilts, self.covs)
        squares = (moved * tilts[:, None]).sum(-1) / 2
        return np.log(self.weights) + tilts @ self.means.T + squares, self.means + moved

    def log_normaliser(self, tilts):
        return logsumexp(self.log_parts(tilts)[0], axis=-1)

    def tilted_mean(self, tilts):
        logs, means = self.log_parts(tilts)
        return (softmax(logs)[..., None] * means).sum(axis=1)


class Sphere:
    def __init__(self, dim):
        self.dim = dim

    def sample(self, shape, rng):
        drawn = rng.standard_normal((*shape, self.dim))
        return drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)

    def tilted_mean(self, tilts):
        size = np.maximum(np.linalg.norm(tilts, axis=-1, keepdims=True), 1e-12)
        return ive(self.dim / 2, size) / ive(self.dim / 2 - 1, size) * tilts / size


class Cube(Sphere):
    def sample(self, shape, rng):
        return rng.uniform(-1, 1, (*shape, self.dim))

    def tilted_mean(self, tilts):
        u = np.where(np.abs(tilts) < 1e-4, 1.0, tilts)
        return np.where(np.abs(tilts) < 1e-4, tilts / 3, 1 / np.tanh(u) - 1 / u)


class Points:
    def __init__(self, points):
        self.points = np.asarray(points, float)

    def sample(self, shape, rng):
        return self.points[rng.integers(len(self.points), size=shape)]

    def tilted_mean(self, tilts):
        return softmax(tilts @ self.points.T) @ self.points

    def log_normaliser(self, tilts):
        return np.log(np.exp(tilts @ self.points.T).mean(axis=-1))


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def attention(A, V, queries, keys):
    """Outputs of queries (..., q, d) over keys (..., n, d)."""
    return softmax(queries @ A.T @ np.swapaxes(keys, -1, -2)) @ keys @ V.T


def summary(values):
    values = np.asarray(values)
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))


def average(function, tokens, n, count, rng, block=2_000_000):
    """Mean of function(keys) over `count` sets of n keys, in batches."""
    batch = max(1, block // (n * n + 1))
    sizes = [min(batch, count - start) for start in range(0, count, batch)]
    return summary(np.concatenate([function(tokens.sample((m, n), rng)) for m in sizes]))


def limit_moments(A, V, tokens, rng, size=200_000):
    """Mean and covariance of the limit output, exact for normal tokens and finite sets."""
    if isinstance(tokens, Mixture) and len(tokens.weights) == 1:
        mean, cov = tokens.means[0], tokens.covs[0]
        return V @ (mean + cov @ A @ mean), V @ cov @ A @ cov @ A.T @ cov @ V.T
    queries = tokens.points if isinstance(tokens, Points) else tokens.sample((size,), rng)
    outputs = tokens.tilted_mean(queries @ A.T) @ V.T
    mean = np.zeros(len(V)) if isinstance(tokens, Sphere) else outputs.mean(axis=0)
    return mean, (outputs - mean).T @ (outputs - mean) / len(outputs)


def moments(A, V, tokens, n, count, rng):
    """E|m_n - m|^2, E|Cov_n - Cov|_F^2 and expected norms, each with its standard error."""
    mean, cov = limit_moments(A, V, tokens, rng)

    def errors(x):
        outputs = attention(A, V, x, x)
        centre = outputs.mean(axis=1)
        around = outputs - centre[:, None]
        gap = np.swapaxes(around, 1, 2) @ around / n - cov
        first, second = ((centre - mean) ** 2).sum(1), (gap**2).sum((1, 2))
        return np.stack([first, second, np.sqrt(first), np.sqrt(second)], axis=1)

    names = ("mean", "covariance", "mean_norm", "covariance_norm")
    averages = average(errors, tokens, n, count, rng)
    return dict(zip(names, zip(*averages, strict=True), strict=True))


def pointwise(A, V, tokens, n, count, rng, x=None):
    """E|Gamma_n(x) - Gamma(x)|^2 at x, or at independent tokens."""

    def errors(keys):
        queries = tokens.sample((len(keys), 1), rng) if x is None else x + 0 * keys[:, :1]
        limit = tokens.tilted_mean(queries[:, 0] @ A.T) @ V.T
        return ((attention(A, V, queries, keys)[:, 0] - limit) ** 2).sum(axis=1)

    return average(errors, tokens, n, count, rng)


def mean_energy(A, V, tokens, rng, batches=24, size=600):
    """E|psi(y)|^2, psi(y) = Gamma(y) - m + E_x[e^{<Ax,y>} / E e^{<Ax,y>} (Vy - Gamma(x))]."""
    mean = limit_moments(A, V, tokens, rng)[0]

    def influence(y, x):
        tilts = x @ A.T
        ratio = np.exp(tilts @ y.T - tokens.log_normaliser(tilts)[:, None]) / len(x)
        as_key = ratio.sum(axis=0)[:, None] * (y @ V.T) - ratio.T @ tokens.tilted_mean(tilts) @ V.T
        return tokens.tilted_mean(y @ A.T) @ V.T - mean + as_key

    y, *x = (tokens.sample((batches, size), rng) for _ in range(3))  # two sets of queries
    products = [influence(y[k], x[0][k]) * influence(y[k], x[1][k]) for k in range(batches)]
    return summary([product.sum(axis=1).mean() for product in products])


def sampled(scores, values, probabilities, count, rng):
    """E|error|^2 of independent keeping with weights 1/p, for one query's scores (N,)."""
    kept = rng.random((count, len(scores))) < probabilities
    weights = np.exp(scores - scores.max()) / probabilities * kept
    outputs = weights @ values / weights.sum(axis=1, keepdims=True)
    return summary(((outputs - softmax(scores) @ values) ** 2).sum(axis=1))
