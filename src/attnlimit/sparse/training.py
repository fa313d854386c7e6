"""The finite system: attention trained on bags, and simulations of what the asymptotics predict.

Stages: (1) one step on (w, b) from zero; (2) one step on q, on the same bags; (3) freeze q and
pool every bag of the second set with it; (4) fit (w, b) on the pooled features to the optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import linprog
from scipy.special import ndtr, softmax

from attnlimit.checks import Array, count, one_of, positive, real_array
from attnlimit.errors import BadInput, NotConverged
from attnlimit.intervals import function_skewness, skewness
from attnlimit.newton import descend
from attnlimit.result import Result
from attnlimit.sparse.losses import Loss, LossLike, as_loss
from attnlimit.sparse.quadrature import check_query, feature_points
from attnlimit.sparse.task import MODELS, MOST_ENTRIES, SparseTask, check_task
from attnlimit.sparse.trained_readout import FINE
from attnlimit.threads import small_matrices

MAX_STEPS = 200


@dataclass(frozen=True, eq=False)
class LinearReadout:
    """A trained readout: sign(<weights, f> + bias)."""

    weights: Array
    bias: float
    train_loss: float
    train_error: float
    steps: int

    def __call__(self, features: Array) -> Array:
        """Predictions <w, f> + b."""
        return features @ self.weights + self.bias


def fit_readout(
    features: Array, labels: Array, loss: LossLike = "logistic", ridge: float = 1e-2
) -> LinearReadout:
    """Minimise (1/n) sum loss(<w, f_i> + b; y_i) + (ridge/2) |w|^2 over (w, b).

    With fewer samples than features the problem is solved in the span of the samples.
    """
    chosen = as_loss(loss)
    ridge = positive(ridge, "ridge")
    F = real_array(features, "features", ndim=2)
    y = real_array(labels, "labels", ndim=1)
    if len(F) != len(y):
        raise BadInput(f"features and labels must have equal lengths, got {len(F)} and {len(y)}.")
    if set(np.unique(y)) != {-1.0, 1.0}:
        raise BadInput(
            f"labels must be -1 and +1, both present, got {sorted(set(y.tolist()))[:4]}; "
            "a classifier needs bags of both classes."
        )
    with small_matrices(F.size):
        n, p = F.shape
        if p <= n:
            return _fit(F, y, chosen, ridge)
        gram = F @ F.T
        gram[np.diag_indices(n)] += 1e-12 * np.trace(gram) / n
        lower = np.asarray(np.linalg.cholesky(gram), dtype=np.float64)
        reduced = _fit(lower, y, chosen, ridge)
        coefficients = solve_triangular(lower, reduced.weights, lower=True, trans="T")
        return replace(reduced, weights=F.T @ coefficients)


def _fit(F: Array, y: Array, loss: Loss, ridge: float) -> LinearReadout:
    n, p = F.shape
    A = np.concatenate([F, np.ones((n, 1))], axis=1)
    ridges = np.append(np.full(p, ridge), 0.0)
    # a small step along the prox gives the curvature of any loss, kinks included
    gamma = np.full(n, 1e-6)

    def objective(x: Array) -> float:
        return float(loss.value(A @ x, y).mean() + 0.5 * ridges @ x**2)

    def slopes(x: Array) -> tuple[Array, Array]:
        z = A @ x
        _, _, curvature = loss.envelope_slopes(z, gamma, y)
        scaled = A * np.sqrt(curvature / n)[:, None]
        hessian = scaled.T @ scaled + np.diag(ridges)
        # where the loss is straight only this floor keeps the bias from running away
        hessian[-1, -1] = max(hessian[-1, -1], 1e-8)
        return A.T @ loss.slope(z, y) / n + ridges * x, hessian

    def longest(x: Array, move: Array) -> float:
        return float(10 * (1 + np.abs(A @ x).max()) / (np.abs(A @ move).max() + 1e-300))

    start = np.zeros(p + 1)
    minimum = descend(
        objective, slopes, start, tolerance=1e-18, steps=MAX_STEPS, longest=longest, rounding=1e-15
    )
    decrement = minimum.decrement / minimum.value
    if decrement > 1e-6:
        raise NotConverged(
            f"the readout's training stopped at a relative decrement of {decrement:.2g}; raise the "
            "ridge.",
            reached=decrement,
        )
    z = A @ minimum.x
    return LinearReadout(
        minimum.x[:-1],
        float(minimum.x[-1]),
        float(loss.value(z, y).mean()),
        float(np.mean(y * z <= 0)),
        minimum.steps,
    )


Blocks = Callable[[], Iterable[tuple[Array, NDArray[Any]]]]
"""Yields bags in blocks (X of shape (n, L, d), y), the same at every call."""


def pool(X: Array, model: str, query: Array | None = None, sharpness: float = 1.0) -> Array:
    """Features of bags: attention-pooled by `query`, mean-pooled, or all tokens side by side."""
    one_of(model, MODELS, "model")
    if model == "pooled":
        return X.mean(axis=1)
    if model == "vectorized":
        return X.reshape(len(X), -1)
    if query is None:
        raise BadInput("attention pooling needs a query.")
    p = softmax(sharpness * (X @ query), axis=1)
    return (p[:, None, :] @ X)[:, 0, :]


def pooled_bags(
    blocks: Iterable[tuple[Array, NDArray[Any]]],
    model: str,
    query: Array | None = None,
    sharpness: float = 1.0,
) -> tuple[Array, Array]:
    """Features and labels of all bags, pooled block by block."""
    parts = [(pool(X, model, query, sharpness), y) for X, y in blocks]
    features, labels = zip(*parts, strict=True)
    return np.concatenate(features), np.concatenate(labels).astype(float)


@dataclass(frozen=True, eq=False)
class QuerySteps:
    """The query after two gradient steps, and the readout of the first."""

    query: Array
    weights: Array
    bias: float


def query_steps(
    blocks: Blocks,
    loss: LossLike = "logistic",
    lr_w: float = 1.0,
    lr_b: float = 1.0,
    lr_q: float = 1.0,
    beta: float = 1.0,
) -> QuerySteps:
    """Take two gradient steps from zero, the first on (w, b), the second on q."""
    chosen = as_loss(loss)
    pull = chosen.initial_pull
    sums = [(len(y), float(y.sum()), y @ X.mean(axis=1)) for X, y in blocks()]
    if not sums:
        raise BadInput("there are no bags to train on; give some of both labels.")
    count, labels, total = (sum(parts) for parts in zip(*sums, strict=True))
    weights = lr_w * pull * total / count
    bias = lr_b * pull * labels / count
    query = np.zeros_like(weights)
    for X, y in blocks():
        scores = X @ weights
        slope = chosen.slope(scores.mean(axis=1) + bias, y.astype(float))
        contrast = scores - scores.mean(axis=1, keepdims=True)
        pull_on_tokens = slope[:, None] * contrast / X.shape[1]
        query += pull_on_tokens.reshape(-1) @ X.reshape(-1, X.shape[2])
    return QuerySteps(-lr_q * beta / count * query, weights, bias)


LARGEST_COSINE = 1 - 1e-12  # rounding may leave 1 itself


@dataclass(frozen=True)
class Measured(Result):
    """Means over independent replicates, with their standard errors and the means' skewness.

    A cosine is averaged as its artanh, which is nearly normal where the cosine itself, close to
    its bound, is not (Fisher 1915); its error and skewness are those of the cosine.
    """

    mean: dict[str, float]
    stderr: dict[str, float]
    skewness: dict[str, float]
    dim: int
    samples: int
    replicates: int

    def to_frame(self) -> pd.DataFrame:
        """One row for each quantity: measured and stderr."""
        table = pd.DataFrame({"measured": self.mean, "stderr": self.stderr})
        sizes = {"dim": self.dim, "samples": self.samples, "replicates": self.replicates}
        return table.rename_axis("quantity").reset_index().assign(**sizes)

    def headline(self) -> str:
        """Replicates, dimension and number of bags."""
        return f"{self.replicates} replicates, d = {self.dim}, n = {self.samples}"


def replicate(
    draw: Callable[[np.random.Generator], dict[str, float]],
    dim: int,
    samples: int,
    replicates: int,
    seed: int,
) -> Measured:
    """Run `draw` with independent generators; means and standard errors of what it returns."""
    replicates = count(replicates, "replicates", smallest=2)
    children = np.random.SeedSequence(count(seed, "seed", smallest=0)).spawn(replicates)
    with small_matrices(dim * samples):
        table = pd.DataFrame([draw(np.random.default_rng(child)) for child in children])
    moments = {str(name): _average(str(name), column.to_numpy()) for name, column in table.items()}
    mean, stderr, skew = ({name: row[k] for name, row in moments.items()} for k in range(3))
    return Measured(mean, stderr, skew, dim, samples, replicates)


def _average(name: str, draws: Array) -> tuple[float, float, float]:
    """Mean, its standard error and its skewness."""
    root = np.sqrt(len(draws))
    if name != "cosine":
        spread = draws.std(ddof=1) / root
        return float(draws.mean()), float(spread), float(skewness(draws) / root)
    angles = np.arctanh(np.clip(draws, -LARGEST_COSINE, LARGEST_COSINE))
    mean, stderr = float(np.tanh(angles.mean())), float(angles.std(ddof=1) / root)
    return mean, (1 - mean**2) * stderr, function_skewness(0.0, stderr, -2 * mean)


def sizes(task: SparseTask, alpha: float, dim: int, name: str = "alpha") -> tuple[int, int]:
    """Dimension and number of bags, both checked."""
    check_task(task)
    dim = count(dim, "dim", 2)
    bags = positive(alpha, name) * dim
    if not 2 <= bags <= MOST_ENTRIES / dim:
        raise BadInput(
            f"{name} * dim is the number of bags to draw, 2 to {MOST_ENTRIES // dim:,}; "
            f"got {alpha:g} * {dim}."
        )
    return dim, round(bags)


def _stepped_query(
    task: SparseTask, n: int, dim: int, rng: np.random.Generator, *steps: Any
) -> tuple[Array, float, float]:
    """Query after two gradient steps on n drawn bags, its norm and its cosine with the signal.

    The bags are drawn again, the same, at every pass: n x L x d is never in memory.
    """
    seed = int(rng.integers(2**62))
    query = query_steps(lambda: task.batches(n, dim, seed), *steps).query
    norm = float(np.linalg.norm(query))
    return query, norm, float(query @ task.direction(dim)) / norm


def unit_query(task: SparseTask, dim: int, cosine: float) -> Array:
    """Return a unit query with this cosine to the signal."""
    xi = task.direction(dim)
    other = np.zeros(dim)
    other[0] = 1.0
    other -= (other @ xi) * xi
    other /= np.linalg.norm(other)
    return cosine * xi + np.sqrt(max(0.0, 1 - cosine**2)) * other


def simulate_readout(
    task: SparseTask,
    alpha: float,
    model: str = "attention",
    *,
    cosine: float = 1.0,
    sharpness: float = 1.0,
    loss: LossLike = "logistic",
    ridge: float = 1e-2,
    dim: int = 1000,
    replicates: int = 8,
    seed: int = 0,
) -> Measured:
    """Train the readout on round(alpha d) drawn bags, and test it: `readout`, measured.

    The test error of each trained readout is computed from the exact law of a fresh bag given
    that readout, so that only the training set is random. Ridge must be positive.
    """
    check_query(model, cosine, sharpness)
    dim, samples = sizes(task, alpha, dim)
    query = unit_query(task, dim, cosine)

    def draw(rng: np.random.Generator) -> dict[str, float]:
        given = model, query, cosine, sharpness, loss, ridge
        return _train_and_test(task, samples, *given, rng)

    return replicate(draw, dim, samples, replicates, seed)


def _train_and_test(
    task: SparseTask,
    bags: int,
    model: str,
    query: Array,
    cosine: float,
    sharpness: float,
    loss: LossLike,
    ridge: float,
    rng: np.random.Generator,
) -> dict[str, float]:
    drawn = task.batches(bags, len(query), rng)
    fitted = fit_readout(*pooled_bags(drawn, model, query, sharpness), loss, ridge)
    error = exact_test_error(task, fitted, model, query, cosine, sharpness, rng)
    trained = {"train_loss": fitted.train_loss, "train_error": fitted.train_error}
    return {"test_error": error, **trained}


def exact_test_error(
    task: SparseTask,
    fitted: LinearReadout,
    model: str,
    query: Array,
    cosine: float,
    sharpness: float,
    rng: np.random.Generator,
) -> float:
    """Error on a fresh bag of a given readout, Gaussian noise integrated by hand."""
    w, b, xi = fitted.weights, fitted.bias, task.direction(len(query))
    if model == "vectorized":
        signal = task.supports(20_000, rng) @ (w.reshape(task.length, -1) @ xi) * task.strength
        noise = np.linalg.norm(w)
        miss = float(np.mean(ndtr(-(signal + b) / noise)))
        return float(task.prior * miss + (1 - task.prior) * ndtr(b / noise))
    if model == "pooled":
        query, cosine = 0 * query, 0.0
    along, sideways = float(w @ query), xi - cosine * query
    size = np.linalg.norm(sideways)
    across = float(w @ sideways / size) if size > 1e-9 else 0.0
    points = feature_points(task, model, cosine, sharpness, FINE)
    return points.error(along, across, b, float(np.linalg.norm(w - along * query)))


def simulate_protocol(
    task: SparseTask,
    alpha0: float,
    alpha1: float,
    *,
    loss: LossLike = "logistic",
    ridge: float = 1e-2,
    lr_w: float = 1.0,
    lr_b: float = 1.0,
    lr_q: float = 1.0,
    beta: float = 1.0,
    dim: int = 1000,
    replicates: int = 8,
    seed: int = 0,
) -> Measured:
    """Run all four stages on drawn bags, query and readout on separate ones: `end_to_end`."""
    dim, first = sizes(task, alpha0, dim, "alpha0")
    _, second = sizes(task, alpha1, dim, "alpha1")
    steps = loss, lr_w, lr_b, lr_q, beta

    def draw(rng: np.random.Generator) -> dict[str, float]:
        query, norm, cosine = _stepped_query(task, first, dim, rng, *steps)
        given = "attention", query / norm, cosine, beta * norm, loss, ridge
        return {**_train_and_test(task, second, *given, rng), "cosine": cosine}

    return replicate(draw, dim, second, replicates, seed)


def simulate_alignment(
    task: SparseTask,
    alpha0: float,
    loss: LossLike = "logistic",
    lr_w: float = 1.0,
    lr_b: float = 1.0,
    lr_q: float = 1.0,
    beta: float = 1.0,
    *,
    dim: int = 1000,
    replicates: int = 8,
    seed: int = 0,
) -> Measured:
    """Take the two gradient steps on round(alpha0 d) drawn bags: `query_alignment`, measured."""
    dim, samples = sizes(task, alpha0, dim, "alpha0")
    steps = loss, lr_w, lr_b, lr_q, beta

    def draw(rng: np.random.Generator) -> dict[str, float]:
        _, norm, cosine = _stepped_query(task, samples, dim, rng, *steps)
        return {"cosine": cosine, "norm": norm}

    return replicate(draw, dim, samples, replicates, seed)


def separable(features: Array, labels: Array) -> bool:
    """Whether some (w, b) classifies every sample: the largest margin t with entries in [-1, 1].

    The linear program max t, y (<w, f> + b) >= t, is always feasible at t = 0; samples are
    separable when its optimum is positive.
    """
    n, dim = features.shape
    signed = labels[:, None] * np.concatenate([features, np.ones((n, 1))], axis=1)
    constraints = np.concatenate([-signed, np.ones((n, 1))], axis=1)
    cost = np.append(np.zeros(dim + 1), -1.0)
    bounds = [(-1.0, 1.0)] * dim + [(None, None), (None, 1.0)]
    program = linprog(cost, A_ub=constraints, b_ub=np.zeros(n), bounds=bounds, method="highs")
    if program.status != 0:
        raise NotConverged(
            f"the linear program of separability failed, try other bags: {program.message}"
        )
    return bool(-program.fun > 1e-7)


def simulate_capacity(
    task: SparseTask,
    alpha: float,
    model: str = "attention",
    *,
    cosine: float = 1.0,
    sharpness: float = 1.0,
    dim: int = 100,
    replicates: int = 20,
    seed: int = 0,
) -> Measured:
    """Fraction of draws of round(alpha d) bags that are separable; one half at the capacity.

    The readout has d weights and a bias; the limit counts d only, a shift of order 1/d.
    """
    check_query(model, cosine, sharpness)
    dim, samples = sizes(task, alpha, dim)
    query = unit_query(task, dim, cosine)

    def draw(rng: np.random.Generator) -> dict[str, float]:
        X, y = task.sample(samples, dim, rng)
        return {"separable": float(separable(pool(X, model, query, sharpness), y.astype(float)))}

    return replicate(draw, dim, samples, replicates, seed)
