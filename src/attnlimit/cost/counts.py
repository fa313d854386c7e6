"""How much is there to do? Pairs, numbers and bytes of every stage, as exact formulas.

N is the context, d the dimension of a head, Q the queries asked. The seconds of a stage are linear
in its `units`; what one unit takes is measured (`attnlimit.cost.rates`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnlimit.cost.shape import Shape

NUMBER = 4  # bytes of a float32
DOUBLE = 8
SCORE_DEPTH = 20.0
"""How far the exact law follows a head's scores below their log-mean-exp: the mean over the heads
of MiniLM and SmolLM2 on 512 tokens, of which nine in ten lie between 8 and 29."""

REFEREE_SIZES = 6
LONGEST = 100
MIXED_QUERIES = 64
MIXED_GRID, MIXED_LAWS = 9, 20
"""Laws of best keys with a sample: those of a curve, and about as many as a budget searches."""

BLOCK = 1 << 22
"""Scores that a blocked pass holds at a time."""

TOKEN_CHARACTERS = 7
"""A token's number in JSON, with its comma and space."""


@dataclass(frozen=True)
class Work:
    """Counts of one stage.

    Attributes
    ----------
    pairs : float
        Query-key pairs looked at.
    units : dict
        What the seconds are proportional to, by name.
    bytes : float
        Largest arrays held at once, besides the model and its captures.
    """

    pairs: float
    units: dict[str, float]
    bytes: float = 0.0

    def times(self, factor: float) -> Work:
        """Return the work done `factor` times, one after the other."""
        units = {name: factor * count for name, count in self.units.items()}
        return Work(factor * self.pairs, units, self.bytes)


def weight_bytes(shape: Shape) -> float:
    """Bytes of the weights: models are loaded in single precision, whole, by every worker."""
    return NUMBER * shape.parameters


def capture_bytes(shape: Shape, tokens: int, texts: int = 1) -> float:
    """Bytes of the queries, keys and values of all layers, which every worker keeps."""
    rows = shape.heads + 2 * shape.kv_heads
    return float(NUMBER * texts * shape.layers * rows * tokens * shape.head_dim)


def load(shape: Shape) -> Work:
    """Read and check the weights."""
    return Work(0, {"calls": 1.0, "bytes": weight_bytes(shape)})


def forward(shape: Shape, tokens: int) -> Work:
    """Run the model once on a text, keeping queries, keys and values.

    2 P N flops in products, and 4 d flops for each pair; a causal kernel skips half of the pairs.
    """
    pairs = attended_pairs(shape.all_heads, tokens, shape.causal)
    units = {
        "flops": 2.0 * shape.multiplied * tokens,
        "pairs": pairs,
        "pair numbers": pairs * shape.head_dim,
        "layer numbers": float(shape.layers * tokens * shape.width),
        "layers": float(shape.layers),
    }
    outputs = NUMBER * tokens * shape.multiplied / (shape.layers * shape.width)
    return Work(pairs, units, outputs)


def attended_pairs(heads: int, tokens: int, causal: bool) -> float:
    """Pairs that the fused attention of some heads looks at."""
    return float(heads * tokens * (tokens + 1) / 2 if causal else heads * tokens**2)


def delta(tokens: int, dim: int) -> Work:
    """Delta method and influence of one head: a few passes over its attention, in blocks."""
    pairs = float(tokens**2)
    units = {"calls": 1.0, "pairs": pairs, "pair numbers": pairs * dim}
    return Work(pairs, units, NUMBER * (4 * min(BLOCK, pairs) + 8 * tokens * dim))


def nodes(largest: int, depth: float = SCORE_DEPTH) -> float:
    """Nodes of the exact law's sum for n from 2 to `largest`, on scores that reach so deep."""
    from attnlimit.theory.law.population import _MARGIN, STEP

    return (math.log(largest) + _MARGIN + depth) / STEP


def law(queries: int, tokens: int, dim: int, largest: int, depth: float = SCORE_DEPTH) -> Work:
    """The exact law of one head at some queries, for any number of n up to `largest`."""
    pairs = float(queries * tokens)
    swept = pairs * nodes(largest, depth)
    units = {
        "calls": 1.0,
        "pair numbers": pairs * dim,
        "node pairs": swept,
        "node numbers": swept * dim,
    }
    return Work(pairs, units, 4 * DOUBLE * min(pairs, BLOCK))


def single_is_enough(tokens: int) -> bool:
    """Whether the exact law is first tried in single precision."""
    from attnlimit.theory.law.population import _SINGLE_COUNT

    return tokens <= _SINGLE_COUNT


def referee_sizes(tokens: int) -> list[int]:
    """The n at which `measure` draws."""
    return [int(n) for n in np.unique(np.geomspace(4, tokens, REFEREE_SIZES).astype(np.int64))]


def referee(tokens: int, dim: int, replicates: int, *, causal: bool) -> Work:
    """Draws of one head: every token asks n keys, `replicates` times, at each of a few n.

    A causal head's queries draw among other keys each: their picks are gathered one by one, and
    its scores and their order are held whole, N x N.
    """
    sizes = referee_sizes(tokens)
    drawn = float(replicates * tokens * sum(sizes))
    passes = float(len(sizes) * tokens**2)
    units = {
        "calls": float(len(sizes)),
        "pairs": passes,
        "drawn pairs": drawn,
        "drawn numbers": drawn * dim,
    }
    block = min(float(BLOCK), drawn)
    held = (3 * DOUBLE + NUMBER * (2 + dim)) * block + 17.0 * tokens**2 if causal else 0.0
    return Work(drawn + passes, units, held or NUMBER * 4 * block)


def budget_law(queries: int, tokens: int, dim: int, depth: float = SCORE_DEPTH) -> Work:
    """The exact law of sampling that one text's budget asks, up to a hundred times the context."""
    return law(queries, tokens, dim, LONGEST * tokens, depth)


def schemes(queries: int, tokens: int, dim: int, texts: int = 1) -> Work:
    """Budgets of one head by all other schemes at Q queries: linear in the context.

    The law of best keys with a sample costs the most. It is searched on one text, and on the others
    mostly checked.
    """
    pairs = float(queries * tokens)
    mixed = float(min(queries, MIXED_QUERIES) * tokens)
    units = {
        "calls": 1.0,
        "queries": float(texts * queries),
        "pair numbers": texts * pairs * dim,
        "mixed pairs": mixed,
        "mixed numbers": mixed * dim,
        "other texts": texts - 1.0,
        "mixed pairs of other texts": (texts - 1) * mixed,
    }
    held = DOUBLE * pairs * (dim + 5.0 * texts + 4.0)
    return Work(texts * (pairs + mixed), units, held)


def scheme_curves(queries: int, tokens: int, dim: int, texts: int) -> Work:
    """The shown text's curve of best keys with a sample, unless its budget needed it anyway."""
    pairs = min(queries, MIXED_QUERIES) * tokens * MIXED_GRID / MIXED_LAWS * (1 - 1 / texts)
    return Work(pairs, {"mixed pairs": pairs, "mixed numbers": pairs * dim})


def horizon(shape: Shape, tokens: int) -> Work:
    """Horizons of all heads, from covariances of queries and keys."""
    square = float(shape.all_heads * shape.head_dim**2)
    units = {
        "layers": float(shape.layers),
        "token squares": square * tokens,
        "cubes": square * shape.head_dim,
    }
    return Work(0, units, 4 * DOUBLE * shape.heads * tokens * shape.head_dim)


def shard(ids: int) -> Work:
    """What the driver does for one shard that carries `ids` token numbers."""
    return Work(0, {"shards": 1.0, "ids": float(ids)}, 3.0 * TOKEN_CHARACTERS * ids)


def sweep(sizes: Sequence[int], draws: int, dim: int) -> Work:
    """Draws of synthetic tokens at a grid of n, all statistics: each query meets each key once."""
    from attnlimit.montecarlo.sweep import asked_queries

    asked = asked_queries(np.asarray(sizes), None)
    largest = int(sizes[-1])
    pairs = float(draws) * asked[-1] * largest
    units = {
        "calls": 1.0,
        "draws": float(draws * len(sizes)),
        "token squares": float(draws) * (largest + sum(asked)) * dim**2,
        "pairs": pairs,
        "pair numbers": pairs * dim,
    }
    return Work(pairs, units, (DOUBLE + NUMBER) * 2.0 * largest * dim)
