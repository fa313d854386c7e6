"""Deterministic points for expectations over what one bag looks like to a fixed query.

Seen through a query with cosine s to the signal and sharpness tau, a bag is summarised by its
scores g, the weights p = softmax(tau g), and k = <p, g>, c = <p, v>, rho = |p|. Bags of any length
are drawn without drawing every token: the largest scores one by one in descending order, by
quasi-random points, and sums over those below as Gaussians with the moments of a truncated normal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri, softmax
from scipy.stats import qmc

from attnlimit.checks import Array, count, not_negative, one_of, real_number
from attnlimit.errors import BadInput
from attnlimit.sparse.task import MODELS, SparseTask, check_task

SEED = 20250925
G_NODES = 241
G_RANGE = 8.5
MOST_ENTRIES = 2**26
"""Scores of all points at most."""
MOST_LOG2_POINTS = 20


@dataclass(frozen=True, eq=False)
class FeaturePoints:
    """Weighted points for E over (y, k, c, rho, G); weights sum to one.

    A prediction on a fresh bag is z = u*along + m*across + b + rho*r*G: `along` multiplies the
    weight on the query (k), `across` the one on the signal's direction (theta_perp c).
    """

    weight: Array
    label: Array
    along: Array
    across: Array
    rho: Array
    noise: Array
    dimension: float = field(default=1.0, kw_only=True)
    """Parameters of the readout divided by d: L for the vectorised classifier."""

    def mean(self, values: Array) -> float:
        """E of a function given at the points.

        Not a BLAS product: on vectors this long its threads cost more than they bring.
        """
        return float(np.einsum("i,i->", self.weight, values))

    def products(self, columns: Array, weights: Array) -> Array:
        """E[weights columns columns^T], for a few rows `columns`."""
        return np.einsum("in,jn->ij", columns * (self.weight * weights), columns)

    def margins(self, along: float, across: float, bias: float) -> Array:
        """Mean of y z given the bag, for a readout with these weights."""
        return self.label * (along * self.along + across * self.across + bias)

    def error(self, along: float, across: float, bias: float, norm: float) -> float:
        """P(y z < 0) on a fresh bag; `norm` is that of the readout orthogonal to the query."""
        return self.mean(ndtr(-self.margins(along, across, bias) / (self.rho * norm)))


@lru_cache(maxsize=32)
def bag_uniforms(tokens: int, log2_points: int, seed: int | tuple[int, ...]) -> Array:
    """Scrambled Sobol points for one Gaussian and the scores of `tokens` tokens."""
    rng = np.random.default_rng(seed)
    points = qmc.Sobol(tokens + 1, scramble=True, rng=rng).random(2**log2_points)
    return np.clip(points, 1e-12, 1 - 1e-12)


def ordered_scores(u: Array, signals: int, noise: int) -> tuple[Array, Array, Array, Array]:
    """Return weights, a normal, and the scores of signals and noise, both in descending order.

    Each row of `u` has a coordinate for the normal, `signals` for theirs, and the rest for the
    largest of `noise` others. The coordinate of each group's largest score has its tails
    oversampled, with weights: errors and capacities at high strength live there.
    """
    u, normals, weight = u.copy(), ndtri(u[:, 0]), np.ones(len(u))
    for first in {1, 1 + signals} - {u.shape[1]}:
        x = u[:, first]
        weight *= 30 * x**2 * (1 - x) ** 2
        u[:, first] = x**3 * (10 - 15 * x + 6 * x**2)
    u = np.clip(u, 1e-15, 1 - 1e-15)
    hit, rest = u[:, 1 : 1 + signals], u[:, 1 + signals :]
    return weight, normals, descending_normals(hit, signals), descending_normals(rest, noise)


def descending_normals(u: Array, total: int) -> Array:
    """Turn rows of n uniforms into the n largest of `total` standard normals, in that order.

    Rényi's recursion for order statistics: the first uniform alone sets the maximum, so that the
    coordinates that matter most to a softmax come first in a quasi-random sequence.
    """
    log_rank = np.cumsum(np.log(u) / np.arange(total, total - u.shape[1], -1), axis=1)
    return -ndtri(np.clip(-np.expm1(log_rank), 1e-300, 1 - 1e-16))


def summarise(scores: Array, sharpness: float, signals: int) -> tuple[Array, Array, Array]:
    """Return k, c (the weight on the first `signals` tokens) and rho for rows of scores."""
    p = softmax(sharpness * scores, axis=1)
    k = np.einsum("ij,ij->i", p, scores)
    return k, p[:, :signals].sum(axis=1), np.sqrt(np.einsum("ij,ij->i", p, p))


@lru_cache(maxsize=64)
def attention_points(
    task: SparseTask, cosine: float, sharpness: float, log2_points: int, seed: int = SEED
) -> FeaturePoints:
    """Quasi-random points for attention: 2**log2_points in each class."""
    u = bag_uniforms(task.length, log2_points, seed)
    parts = []
    for label, prior, signals in ((1.0, task.prior, task.signals), (-1.0, 1 - task.prior, 0)):
        weight, normals, hit, noise = ordered_scores(u, signals, task.length - signals)
        scores = np.concatenate([hit + task.strength * cosine, noise], axis=1)
        k, c, rho = summarise(scores, sharpness, signals)
        across = task.strength * np.sqrt(max(0.0, 1 - cosine**2)) * c
        weight = prior * weight / weight.sum()
        parts.append((weight, np.full(len(u), label), k, across, rho, normals))
    return FeaturePoints(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@lru_cache(maxsize=64)
def linear_points(task: SparseTask, model: str) -> FeaturePoints:
    """Points for the pooled and vectorised classifiers, whose features are Gaussian.

    Only the noise is random: a trapezoid rule, spectrally accurate. Both are one signal of size
    theta R / L (pooled, noise 1/sqrt(L)) or theta R / sqrt(L) (vectorised, noise 1) along one
    direction; the vectorised one has L d parameters.
    """
    noise = np.linspace(-G_RANGE, G_RANGE, G_NODES)
    weight = np.exp(-0.5 * noise**2)
    weight /= weight.sum()
    pooled = model == "pooled"
    signal = task.strength * task.signals / (task.length if pooled else np.sqrt(task.length))
    label = np.repeat([1.0, -1.0], G_NODES)
    return FeaturePoints(
        weight=np.concatenate([task.prior * weight, (1 - task.prior) * weight]),
        label=label,
        along=np.zeros(2 * G_NODES),
        across=np.where(label > 0, signal, 0.0),
        rho=np.full(2 * G_NODES, 1 / np.sqrt(task.length) if pooled else 1.0),
        noise=np.tile(noise, 2),
        dimension=1.0 if pooled else float(task.length),
    )


def check_points(log2_points: int) -> int:
    """Return the base-2 logarithm of a number of points, 1 to 20."""
    if count(log2_points, "log2_points") > MOST_LOG2_POINTS:
        raise BadInput(f"log2_points must be at most {MOST_LOG2_POINTS}, got {log2_points}.")
    return int(log2_points)


def check_query(model: str, cosine: float, sharpness: float) -> None:
    """Raise BadInput for an unknown model or an impossible query."""
    one_of(model, MODELS, "model")
    if model != "attention":
        return
    if cosine is None or sharpness is None:
        raise BadInput("attention needs the query's cosine and sharpness; give both.")
    if not -1 <= real_number(cosine, "cosine") <= 1:
        raise BadInput(f"cosine must lie between -1 and 1, got {cosine}.")
    not_negative(sharpness, "sharpness")


def feature_points(
    task: SparseTask, model: str, cosine: float, sharpness: float, log2_points: int
) -> FeaturePoints:
    """Return the points for one of the three classifiers, after checking the arguments."""
    check_task(task)
    check_query(model, cosine, sharpness)
    log2_points = check_points(log2_points)
    if model == "attention":
        if task.length << log2_points > MOST_ENTRIES:
            longest = MOST_ENTRIES >> log2_points
            raise BadInput(
                f"length must be at most {longest} at log2_points = {log2_points}, got "
                f"{task.length}; use fewer points, oracle_error, or simulate_readout."
            )
        return attention_points(task, float(cosine), float(sharpness), log2_points)
    return linear_points(task, model)


EXPLICIT = 64
"""Noise tokens drawn individually; longer bags have Gaussian sums over the rest."""


@dataclass(frozen=True, eq=False)
class BagScores:
    """Weighted draws of the scores of one class: `noise` is descending, signals are unshifted."""

    weight: Array
    noise: Array
    signals: Array
    hidden: int
    """Noise tokens below the explicit ones."""
    normals: Array
    """A standard normal for the sums over the hidden tokens."""

    @property
    def level(self) -> Array:
        """The smallest explicit noise score: every hidden one lies below it."""
        return self.noise[:, -1]


@lru_cache(maxsize=8)
def bag_scores(noise_tokens: int, signals: int, log2_points: int, replicate: int) -> BagScores:
    """Draw 2**log2_points bags with `noise_tokens` noise tokens and `signals` signal tokens."""
    explicit = min(noise_tokens, EXPLICIT)
    if (signals + explicit) << log2_points > MOST_ENTRIES:
        raise BadInput(
            f"signals must be at most {(MOST_ENTRIES >> log2_points) - explicit} at log2_points = "
            f"{log2_points}, got {signals}; use fewer points."
        )
    u = bag_uniforms(signals + explicit, log2_points, (SEED, replicate))
    weight, normals, hit, noise = ordered_scores(u, signals, noise_tokens)
    return BagScores(weight / weight.sum(), noise, hit, noise_tokens - explicit, normals)


def log_truncated_mgf(tilt: float, level: Array) -> Array:
    """log E[e^{tilt x} | x < level] for a standard normal x."""
    return 0.5 * tilt**2 + log_ndtr(level - tilt) - log_ndtr(level)
