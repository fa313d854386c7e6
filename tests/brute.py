"""Brute force in plain numpy: what laws and measurements are held to.

Nothing here is imported from the package. A setting is a head (A, V) and tokens given by a sampler
and their limit map; every function returns a mean over independent draws and its standard error.
"""

import numpy as np


class Gaussian:
    """Normal tokens of any covariance, singular ones included."""

    def __init__(self, mean, cov):
        self.mean, self.cov = np.asarray(mean, float), np.asarray(cov, float)
        values, vectors = np.linalg.eigh(self.cov)
        self.root = vectors * np.sqrt(np.maximum(values, 0))

    def sample(self, shape, rng):
        return self.mean + rng.standard_normal((*shape, len(self.mean))) @ self.root.T

    def tilted_mean(self, tilts):
        return self.mean + tilts @ self.cov


class Sphere:
    """Uniform on the unit sphere; the tilted mean by a fine rule over heights."""

    def __init__(self, dim):
        self.dim = dim

    def sample(self, shape, rng):
        drawn = rng.standard_normal((*shape, self.dim))
        return drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)

    def tilted_mean(self, tilts):
        angle = (np.arange(4000) + 0.5) * np.pi / 4000
        size = np.maximum(np.linalg.norm(tilts, axis=-1, keepdims=True), 1e-12)
        grid = np.linspace(0, size.max(), 400)
        weight = np.exp(grid[:, None] * (np.cos(angle) - 1)) * np.sin(angle) ** (self.dim - 2)
        height = np.interp(size, grid, weight @ np.cos(angle) / weight.sum(axis=1))
        return height * tilts / size


class Points:
    """Finitely many tokens, drawn with replacement."""

    def __init__(self, points):
        self.points = np.asarray(points, float)

    def sample(self, shape, rng):
        return self.points[rng.integers(len(self.points), size=shape)]

    def tilted_mean(self, tilts):
        return softmax(tilts @ self.points.T) @ self.points


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def attention(A, V, queries, keys):
    """Outputs of queries (..., q, d) over keys (..., n, d)."""
    return softmax(queries @ A.T @ np.swapaxes(keys, -1, -2)) @ keys @ V.T


def summary(values):
    values = np.asarray(values)
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))


def draws(tokens, n, count, rng, block=2_000_000):
    """Batches of `count` sets of n tokens."""
    batch = max(1, block // (n * n + 1))
    for start in range(0, count, batch):
        yield tokens.sample((min(batch, count - start), n), rng)


def limit_moments(A, V, tokens, rng, size=200_000):
    """Mean and covariance of the limit output, exact for normal tokens and finite sets."""
    if isinstance(tokens, Gaussian):
        slope = V @ tokens.cov @ A
        return V @ (tokens.mean + tokens.cov @ A @ tokens.mean), slope @ tokens.cov @ slope.T
    queries = tokens.points if isinstance(tokens, Points) else tokens.sample((size,), rng)
    outputs = tokens.tilted_mean(queries @ A.T) @ V.T
    mean = np.zeros(len(V)) if isinstance(tokens, Sphere) else outputs.mean(axis=0)
    return mean, (outputs - mean).T @ (outputs - mean) / len(outputs)


def moments(A, V, tokens, n, count, rng):
    """E|m_n - m|^2 and E|Cov_n - Cov|_F^2, each with its standard error, and expected norms."""
    mean, cov = limit_moments(A, V, tokens, rng)
    rows = []
    for x in draws(tokens, n, count, rng):
        outputs = attention(A, V, x, x)
        centre = outputs.mean(axis=1)
        around = outputs - centre[:, None]
        gap = np.swapaxes(around, 1, 2) @ around / n - cov
        first, second = ((centre - mean) ** 2).sum(1), (gap**2).sum((1, 2))
        rows.append(np.stack([first, second, np.sqrt(first), np.sqrt(second)], axis=1))
    value, error = summary(np.concatenate(rows))
    names = ("mean", "covariance", "mean_norm", "covariance_norm")
    return {name: (value[k], error[k]) for k, name in enumerate(names)}


def pointwise(A, V, tokens, n, count, rng, x=None):
    """E|Gamma_n(x) - Gamma(x)|^2 and E Gamma_n(x) - Gamma(x), at x or at independent tokens."""
    squares, errors = [], []
    for keys in draws(tokens, n, count, rng):
        queries = (
            tokens.sample((len(keys), 1), rng)
            if x is None
            else np.broadcast_to(x, (len(keys), 1, len(x)))
        )
        gap = attention(A, V, queries, keys)[:, 0] - tokens.tilted_mean(queries[:, 0] @ A.T) @ V.T
        squares.append((gap**2).sum(axis=1))
        errors.append(gap)
    return summary(np.concatenate(squares)), summary(np.concatenate(errors))


def mean_energy(A, V, tokens, rng, batches=24, size=600):
    """Trace of Cov psi, psi the influence of a token on the mean output; normal tokens or points.

    psi(y) = Gamma(y) - m + E_x[e^{<Ax,y>} / E e^{<Ax,y>} (Vy - Gamma(x))]: two sets of queries.
    """
    mean = limit_moments(A, V, tokens, rng)[0]

    def influence(y, x):
        tilts = x @ A.T
        if isinstance(tokens, Points):
            normaliser = np.log(np.exp(tilts @ tokens.points.T).mean(axis=1))
        else:
            normaliser = tilts @ tokens.mean + ((tilts @ tokens.cov) * tilts).sum(axis=1) / 2
        ratio = np.exp(tilts @ y.T - normaliser[:, None])
        as_key = ratio.mean(axis=0)[:, None] * (y @ V.T)
        as_key -= ratio.T @ (tokens.tilted_mean(tilts) @ V.T) / len(x)
        return tokens.tilted_mean(y @ A.T) @ V.T - mean + as_key

    rows = []
    for _ in range(batches):
        y, *x = (tokens.sample((size,), rng) for _ in range(3))
        rows.append((influence(y, x[0]) * influence(y, x[1])).sum(axis=1).mean())
    return summary(rows)


def participation(sigma, n, count, rng):
    """E sum p_i^2, bias and squared error of attention over n standard normal keys."""
    y = rng.standard_normal((count, n))
    p = softmax(sigma * y)
    gap = (p * y).sum(axis=1) - sigma
    return summary(np.stack([(p**2).sum(axis=1), gap, gap**2], axis=1))


def hardmax(A, V, support, x, tokens, n, count, rng):
    """E|V y_best - V support point|^2, y_best the key of the largest score."""
    squares = []
    for keys in draws(tokens, n, count, rng):
        best = np.take_along_axis(keys, (keys @ (A @ x)).argmax(axis=1)[:, None, None], 1)[:, 0]
        squares.append((((best - support) @ V.T) ** 2).sum(axis=1))
    return summary(np.concatenate(squares))


def sampled(scores, values, probabilities, count, rng):
    """E|error|^2 of independent keeping with weights 1/p, for each query (row of `scores`)."""
    exact = softmax(scores) @ values
    squares = []
    for _ in range(count):
        kept = rng.random(scores.shape) < probabilities
        weights = np.exp(scores - scores.max(axis=1, keepdims=True)) / probabilities * kept
        outputs = weights @ values / weights.sum(axis=1, keepdims=True)
        squares.append(((outputs - exact) ** 2).sum(axis=1))
    return summary(np.array(squares))
