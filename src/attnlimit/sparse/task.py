"""The sparse-token classification task: bags of noise, some with a hidden signal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array, count, not_negative, probability
from attnlimit.errors import BadInput

MODELS = ("attention", "pooled", "vectorized")
BATCH_ENTRIES = 4_000_000
"""Numbers drawn at a time when streaming: 32 MB in double precision."""
MOST_STRENGTH = 1e4
"""Largest strength; beyond it the equations of trained readouts lose their digits."""
MOST_ENTRIES = 2**31
"""Numbers that `SparseTask.sample` returns at most: 16 GB."""


@dataclass(frozen=True)
class SparseTask:
    """Tell bags with a few shifted tokens from bags of pure noise.

    A bag is X in R^{L x d} with label y = +1 with probability `prior`. A negative bag is standard
    normal noise. A positive bag has the vector `strength` * xi (a hidden unit vector) added to
    `signals` of its `length` rows. Model of Barnfield, Cui and Lu (arXiv 2509.25153).

    Parameters
    ----------
    length
        Tokens in a bag, L.
    signals
        Tokens that carry the signal in a positive bag, R.
    strength
        Norm of the shift, theta >= 0, in units of the noise.
    prior
        Probability of a positive bag, pi.
    """

    length: int = 10
    signals: int = 1
    strength: float = 5.0
    prior: float = 0.5

    def __post_init__(self) -> None:
        length = count(self.length, "length")
        signals = count(self.signals, "signals")
        if signals > length:
            raise BadInput(
                f"signals must be at most length, got {signals} signal tokens in bags of "
                f"{length}; lower signals or raise length."
            )
        object.__setattr__(self, "length", length)
        object.__setattr__(self, "signals", signals)
        strength = not_negative(self.strength, "strength")
        if strength > MOST_STRENGTH:
            raise BadInput(
                f"strength must be at most {MOST_STRENGTH:g} standard deviations of the noise, got "
                f"{strength:g}; measure it in units of the noise."
            )
        object.__setattr__(self, "strength", strength)
        object.__setattr__(self, "prior", probability(self.prior, "prior"))

    @property
    def guess(self) -> float:
        """Error of guessing the likelier class."""
        return min(self.prior, 1 - self.prior)

    def direction(self, dim: int) -> Array:
        """The hidden unit vector xi used by `sample`: all entries equal, no loss of generality."""
        return np.full(dim, 1 / np.sqrt(dim))

    def labels(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw `n` labels in {-1, +1}."""
        return np.where(rng.random(n) < self.prior, 1, -1).astype(np.int64)

    def supports(self, n: int, rng: np.random.Generator) -> Array:
        """Draw `n` indicator vectors v in {0, 1}^L with R ones."""
        keys = rng.random((n, self.length))
        chosen = np.argpartition(keys, self.signals - 1, axis=1)[:, : self.signals]
        support = np.zeros((n, self.length))
        np.put_along_axis(support, chosen, 1.0, axis=1)
        return support

    def sample(
        self, n: int, dim: int, seed: int | np.random.Generator = 0
    ) -> tuple[Array, NDArray[np.int64]]:
        """Draw `n` labelled bags: X of shape (n, L, dim) and y in {-1, +1}.

        Examples
        --------
        >>> from attnlimit.sparse import SparseTask
        >>> X, y = SparseTask(length=4, strength=3.0).sample(8, dim=5, seed=1)
        >>> X.shape, sorted(set(y.tolist()))
        ((8, 4, 5), [-1, 1])
        """
        n, dim = count(n, "n"), count(dim, "dim")
        if n * self.length * dim > MOST_ENTRIES:
            raise BadInput(
                f"n = {n} bags of {self.length} x {dim} numbers do not fit in memory; draw them "
                "with batches(n, dim, seed)."
            )
        rng = generator(seed)
        y = self.labels(n, rng)
        X = rng.standard_normal((n, self.length, dim))
        shift = self.strength * self.direction(dim)
        bags, tokens = np.nonzero(self.supports(n, rng) * (y > 0)[:, None])
        X[bags, tokens] += shift
        return X, y

    def batches(
        self, n: int, dim: int, seed: int | np.random.Generator = 0
    ) -> Iterator[tuple[Array, NDArray[np.int64]]]:
        """Yield `n` bags in blocks that stay under 32 MB, however large n x L x dim is."""
        n, dim = count(n, "n"), count(dim, "dim")
        rng = generator(seed)
        block = max(1, BATCH_ENTRIES // (self.length * dim))
        for start in range(0, n, block):
            yield self.sample(min(block, n - start), dim, rng)


def check_task(task: object) -> SparseTask:
    """Return `task` if it is a SparseTask."""
    if not isinstance(task, SparseTask):
        raise BadInput(f"task must be an al.sparse.SparseTask, got {type(task).__name__}.")
    return task


def generator(seed: object) -> np.random.Generator:
    """Return a generator from a seed, or the generator that was given."""
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(count(seed, "seed", smallest=0))
