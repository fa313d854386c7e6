"""Milliseconds of attention for a decoded token, predicted from bytes and operations.

Two numbers are of the machine: bytes a millisecond that dense attention reads, and keys a
millisecond that the 4-bit kernel scores and draws. The rest are counts. `attnlimit.decoding`
measures both numbers in some tenths of a second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.constants import CALL, PAGE_DRAWN, PAGE_KEYS, PAGE_KEYS_READ, PAGE_START
from attnlimit.samplers import Sampler

CROSSOVER_GRID = [round(64 * 2 ** (step / 4)) for step in range(0, 53)]


@dataclass(frozen=True)
class Shape:
    """Attention of one layer for one sequence."""

    heads: int
    key_heads: int
    width: int  # of keys
    value_width: int
    number: float  # bytes of a number of the cache

    @property
    def row_bytes(self) -> float:
        """Bytes of a key and its value."""
        return (self.width + self.value_width) * self.number

    @property
    def code_bytes(self) -> float:
        """Bytes of a key's 4-bit code and its scale."""
        return self.width / 2 + 4


@dataclass(frozen=True)
class CostModel:
    """Speed of a machine; by default that of one core of a server of 2023."""

    bytes_per_ms: float = 9e6  # that dense attention reads
    keys_per_ms: float = 6e5  # of width 64, scored and drawn by the kernel for one query head

    def __post_init__(self) -> None:
        checks.positive(self.bytes_per_ms, "bytes_per_ms")
        checks.positive(self.keys_per_ms, "keys_per_ms")

    def milliseconds(
        self, shape: Shape, tokens: int, c: float, batch: int = 1
    ) -> tuple[float, float, float]:
        """Milliseconds of a layer: all keys, 4 bits of every key, and two levels."""
        dense = batch * shape.key_heads * tokens * shape.row_bytes / self.bytes_per_ms
        width = 0.5 + shape.width / 128  # half of the work is scores, half draws
        kept = min(c, tokens)
        each = batch * shape.heads * width / self.keys_per_ms
        keys = each * (tokens + 8 * kept)
        pages = each * (PAGE_START + PAGE_KEYS * tokens + (PAGE_DRAWN + 8) * kept)
        call = CALL * 6e5 / self.keys_per_ms
        return dense, keys + call, pages + call

    def crossover(self, shape: Shape, c: float, levels: int) -> int:
        """Tokens from which reading few keys is faster than reading all."""
        for tokens in CROSSOVER_GRID:
            each = self.milliseconds(shape, tokens, c)
            if each[levels] < each[0]:
                return tokens
        return CROSSOVER_GRID[-1]


@dataclass(frozen=True, eq=False)
class CacheUse:
    """Bytes and time of a decoded token over a cache, all layers together.

    Arrays have layers last; leading dimensions of `rows` are those of the results.
    """

    shape: Shape
    stored: Array  # (L,) keys that a head of a layer holds
    keys: Array  # (L,) read by a query of each head, summed over heads
    rows: Array  # (..., L) bytes of a key and its value
    sampler: Sampler | None  # of every head; None reads all keys
    log_weights: bool = False  # whether each key has a weight beside it

    @property
    def selection(self) -> float:
        """Bytes of each key that are read to choose, with the index of fast decoding."""
        return (
            0.0
            if self.sampler is None
            else self.sampler.selection_bytes(self.shape.width, self.shape.number)
        )

    @property
    def bytes_read(self) -> Array:
        """Bytes that are read of keys, values and index; query heads are counted one by one."""
        groups = self.shape.key_heads
        if self.sampler is None:
            return np.asarray((groups * self.stored * self.rows).sum(-1))
        read = groups * self.stored * self.selection + self.keys * self.rows
        if self.sampler.levels == 2:  # keys of pages that are drawn
            drawn = PAGE_DRAWN * (self.sampler.threshold or 0.0)
            scored = np.minimum(self.stored, PAGE_KEYS_READ + drawn)
            read = read + self.shape.heads * scored * self.shape.code_bytes
        return np.asarray(read.sum(-1))

    @property
    def bytes_stored(self) -> Array:
        """Bytes of keys, values, log weights, and of an index beside rows that are not rounded."""
        whole = self.rows >= self.shape.row_bytes
        index = self.shape.code_bytes * whole * (self.sampler is not None)
        each = self.rows + index + 4 * self.log_weights
        return np.asarray((self.shape.key_heads * self.stored * each).sum(-1))

    def milliseconds(self, machine: CostModel) -> Array:
        """Time of attention; infinite for samplers that the kernels do not run.

        Keys that are all read are read by the kernels where they are rounded.
        """
        levels, c = 0, np.inf
        if self.sampler is not None:
            levels, c = self.sampler.levels, self.sampler.threshold or np.inf
            if not levels:
                return np.full(self.rows.shape[:-1], np.inf)
        times = np.array([machine.milliseconds(self.shape, int(n), c) for n in self.stored])
        rounded = self.rows < self.shape.row_bytes
        each = np.where(rounded, times[:, max(1, levels)], times[:, levels])
        return np.asarray(each.sum(-1))
