"""Which tokens of a sequence does a query see? Ways to choose, as small values that draw keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.heads import Head

Picks = tuple[NDArray[np.int64], Array]
"""Chosen keys, and what is added to their scores."""


class Sampler(Protocol):
    """Chooses keys for one query."""

    def draw(self, scores: Array, place: int, n: int, rng: np.random.Generator) -> Picks:
        """Choose about `n` keys for the query at `place`, given its scores on all keys."""
        ...


def _plain(keys: NDArray[np.int64]) -> Picks:
    return keys, np.zeros(len(keys))


def _outside(keys: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    rest = np.ones(size, dtype=bool)
    rest[keys] = False
    return np.flatnonzero(rest)


@dataclass(frozen=True)
class Iid:
    """n tokens drawn independently, with replacement."""

    def draw(self, scores: Array, place: int, n: int, rng: np.random.Generator) -> Picks:
        """Choose n keys."""
        return _plain(rng.integers(0, len(scores), size=n))


@dataclass(frozen=True)
class WithoutReplacement:
    """n different tokens."""

    def draw(self, scores: Array, place: int, n: int, rng: np.random.Generator) -> Picks:
        """Choose n keys, or all of them if there are fewer."""
        return _plain(rng.permutation(len(scores))[:n])


@dataclass(frozen=True)
class Window:
    """The `width` tokens around the query, and `random` others (as in BigBird)."""

    width: int
    random: int = 0

    def __post_init__(self) -> None:
        checks.count(self.width, "width", smallest=1)
        checks.count(self.random, "random", smallest=0)

    def draw(self, scores: Array, place: int, n: int, rng: np.random.Generator) -> Picks:
        """Choose the window and the others; the sampler's own sizes rule, not n."""
        size = len(scores)
        start = int(np.clip(place - self.width // 2, 0, max(0, size - self.width)))
        near = np.arange(start, min(size, start + self.width))
        far = rng.permutation(_outside(near, size))[: self.random]
        return _plain(np.concatenate([near, far]))


@dataclass(frozen=True)
class SinksAndRecent:
    """The first `sinks` tokens and the last `recent` ones up to the query."""

    sinks: int = 4
    recent: int = 64

    def __post_init__(self) -> None:
        checks.count(self.sinks, "sinks", smallest=0)
        checks.count(self.recent, "recent", smallest=0)
        if self.sinks + self.recent == 0:
            raise BadInput("SinksAndRecent keeps nothing; give sinks or recent above 0.")

    def draw(self, scores: Array, place: int, n: int, rng: np.random.Generator) -> Picks:
        """Choose them; the sampler's own sizes rule, not n."""
        first = np.arange(min(self.sinks, len(scores)))
        last = np.arange(max(0, place + 1 - self.recent), place + 1)
        return _plain(np.union1d(first, last))


@dataclass(frozen=True)
class TopK:
    """The k keys of the highest score."""

    k: int

    def __post_init__(self) -> None:
        checks.count(self.k, "k", smallest=1)

    def draw(self, scores: Array, place: int, n: int, rng: np.random.Generator) -> Picks:
        """Choose them; k rules, not n."""
        size = min(self.k, len(scores))
        return _plain(np.argpartition(scores, len(scores) - size)[len(scores) - size :])


@dataclass(frozen=True)
class Keep:
    """A kept set, and an independent (Bernoulli) sample of the rest, `sample` keys on average.

    `weighted` divides the weight of a sampled key by its chance, so that sums over the keys are
    unbiased. With `kept=None` every key is sampled.
    """

    kept: Sampler | None = None
    sample: int = 192
    weighted: bool = True

    def __post_init__(self) -> None:
        checks.count(self.sample, "sample", smallest=0)
        if isinstance(self.kept, (Iid, Keep)):
            raise BadInput("Keep needs a set to keep, such as TopK or SinksAndRecent.")

    def draw(self, scores: Array, place: int, n: int, rng: np.random.Generator) -> Picks:
        """Choose the kept keys and the sample; the sampler's own sizes rule, not n."""
        keys = np.zeros(0, dtype=np.int64)
        if self.kept is not None:
            keys = self.kept.draw(scores, place, n, rng)[0]
        rest = _outside(keys, len(scores))
        chance = min(1.0, self.sample / max(1, len(rest)))
        chosen = rest[rng.random(len(rest)) < chance]
        shift = -np.log(chance) if self.weighted and chance > 0 else 0.0
        added = np.concatenate([np.zeros(len(keys)), np.full(len(chosen), shift)])
        return np.concatenate([keys, chosen]), added


def sampled_errors(
    head: Head,
    sequence: ArrayLike,
    places: ArrayLike,
    sampler: Sampler,
    n: int,
    replicates: int,
    seed: int = 0,
) -> Array:
    """Errors of attention over sampled keys against all keys: (replicates, queries, d_v).

    Parameters
    ----------
    sequence : (N, d) array
        The tokens, queries and keys both.
    places : array of int
        Which of them to ask as queries.
    n : int
        Keys for `Iid` and `WithoutReplacement`; the other samplers carry their sizes.
    """
    tokens = checks.real_array(sequence, "sequence", ndim=2)
    asked = np.atleast_1d(np.asarray(places, dtype=np.int64))
    if asked.size == 0 or asked.min() < 0 or asked.max() >= len(tokens):
        raise BadInput(f"places must lie between 0 and {len(tokens) - 1}.")
    size = checks.count(n, "n")
    draws = checks.count(replicates, "replicates")
    values = tokens @ head.V.T
    scores = head.tilts(tokens[asked]) @ tokens.T
    whole = head(tokens[asked], tokens)
    rng = np.random.default_rng(seed)
    errors = np.empty((draws, len(asked), head.value_dim))
    for row in range(draws):
        for column, place in enumerate(asked):
            keys, added = sampler.draw(scores[column], int(place), size, rng)
            if len(keys) == 0:
                errors[row, column] = -whole[column]
                continue
            logits = scores[column, keys] + added
            weights = np.exp(logits - logits.max())
            errors[row, column] = weights @ values[keys] / weights.sum() - whole[column]
    return errors
