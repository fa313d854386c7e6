"""Draw, train and test the real finite system: the referee of every formula in this room."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import linprog
from scipy.special import ndtr

from attnlimit.checks import Array, count, positive
from attnlimit.errors import NotConverged
from attnlimit.result import Result
from attnlimit.skewed import of_function, skewness
from attnlimit.sparse.law.features import check_query, feature_points
from attnlimit.sparse.law.readout import FINE, LossLike
from attnlimit.sparse.task import SparseTask
from attnlimit.sparse.train.descent import pool, pooled_bags, query_steps
from attnlimit.sparse.train.fit import LinearReadout, fit_readout

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
        """How much was drawn."""
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
    children = np.random.SeedSequence(seed).spawn(replicates)
    table = pd.DataFrame([draw(np.random.default_rng(child)) for child in children])
    found = {str(name): _average(str(name), column.to_numpy()) for name, column in table.items()}
    mean, stderr, skew = ({name: one[k] for name, one in found.items()} for k in range(3))
    return Measured(mean, stderr, skew, dim, samples, replicates)


def _average(name: str, draws: Array) -> tuple[float, float, float]:
    """Mean, its standard error and its skewness."""
    root = np.sqrt(len(draws))
    if name != "cosine":
        spread = draws.std(ddof=1) / root
        return float(draws.mean()), float(spread), float(skewness(draws) / root)
    angles = np.arctanh(np.clip(draws, -LARGEST_COSINE, LARGEST_COSINE))
    mean, stderr = float(np.tanh(angles.mean())), float(angles.std(ddof=1) / root)
    return mean, (1 - mean**2) * stderr, of_function(0.0, stderr, -2 * mean)


def sizes(alpha: float, dim: int, name: str = "alpha") -> tuple[int, int]:
    """Dimension and number of bags, both checked."""
    dim = count(dim, "dim", 2)
    return dim, round(positive(alpha, name) * dim)


def stepped_query(
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
    dim, samples = sizes(alpha, dim)
    query = unit_query(task, dim, cosine)

    def draw(rng: np.random.Generator) -> dict[str, float]:
        bags = pooled_bags(task.batches(samples, dim, rng), model, query, sharpness)
        fitted = fit_readout(*bags, loss, ridge)
        error = exact_test_error(task, fitted, model, query, cosine, sharpness, rng)
        return {"test_error": error, **_training(fitted)}

    return replicate(draw, dim, samples, replicates, seed)


def _training(fitted: LinearReadout) -> dict[str, float]:
    return {"train_loss": fitted.train_loss, "train_error": fitted.train_error}


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
    dim = len(query)
    xi = task.direction(dim)
    w, b, prior = fitted.weights, fitted.bias, task.prior
    if model == "attention":
        points = feature_points(task, model, cosine, sharpness, FINE)
        along = float(w @ query)
        sideways = xi - cosine * query
        size = np.linalg.norm(sideways)
        across = float(w @ sideways / size) if size > 1e-9 else 0.0
        return points.error(along, across, b, float(np.linalg.norm(w - along * query)))
    if model == "pooled":
        signal = np.full(1, task.strength * task.signals / task.length * float(w @ xi))
        noise_scale = np.linalg.norm(w) / np.sqrt(task.length)
    else:
        each = task.strength * (w.reshape(task.length, dim) @ xi)
        signal = task.supports(20_000, rng) @ each
        noise_scale = np.linalg.norm(w)
    miss = float(np.mean(ndtr(-(signal + b) / noise_scale)))
    return float(prior * miss + (1 - prior) * ndtr(b / noise_scale))


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
    (dim, first), (_, second) = sizes(alpha0, dim, "alpha0"), sizes(alpha1, dim, "alpha1")
    model, steps = "attention", (loss, lr_w, lr_b, lr_q, beta)

    def draw(rng: np.random.Generator) -> dict[str, float]:
        query, norm, cosine = stepped_query(task, first, dim, rng, *steps)
        bags = pooled_bags(task.batches(second, dim, rng), model, query, beta)
        fitted = fit_readout(*bags, loss, ridge)
        error = exact_test_error(task, fitted, model, query / norm, cosine, beta * norm, rng)
        return {"test_error": error, **_training(fitted), "cosine": cosine}

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
    dim, samples = sizes(alpha0, dim, "alpha0")
    steps = loss, lr_w, lr_b, lr_q, beta

    def draw(rng: np.random.Generator) -> dict[str, float]:
        _, norm, cosine = stepped_query(task, samples, dim, rng, *steps)
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
    found = linprog(cost, A_ub=constraints, b_ub=np.zeros(n), bounds=bounds, method="highs")
    if found.status != 0:
        raise NotConverged(f"the linear program of separability failed: {found.message}")
    return bool(-found.fun > 1e-7)


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
    dim, samples = sizes(alpha, dim)
    query = unit_query(task, dim, cosine)

    def draw(rng: np.random.Generator) -> dict[str, float]:
        X, y = task.sample(samples, dim, rng)
        return {"separable": float(separable(pool(X, model, query, sharpness), y.astype(float)))}

    return replicate(draw, dim, samples, replicates, seed)
