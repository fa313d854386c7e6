"""Index of a layer's keys: 4-bit codes, and summaries of pages of 64 keys.

A row is the keys of one sequence and key-value head, counted from the sequence's first token. The
index holds d/2 + 4 bytes of every key, and with pages 4 d bytes more of every 64 keys. Keys are
appended as text is read; pages are summarised when they are full.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlimit.decoding.dot import BLOCK
from attnlimit.decoding.rows import OUTLIERS, pack, summarise
from attnlimit.errors import BadInput
from attnlimit.samplers import Sampler, TwoLevel

Floats = NDArray[np.float32]
Counts = NDArray[np.int64]
LARGE_PAGE = 1 << 21
"""Bytes of a large page of memory."""
FLOOR = np.float32(0.02)
"""Least probability of a key within its page."""
PAGE_FLOOR, SPARE_PAGES = np.float32(TwoLevel.page_floor), np.float32(TwoLevel.spare_pages)
RIDGE = 0.01
"""Share of the mean variance that is added to that of each axis of the page summaries."""


@dataclass(eq=False)
class Pages:
    """Summaries of a layer's pages along axes in which their variances are nearly the identity."""

    axes: Floats  # (rows, d, d) from keys to these coordinates
    rotation: Floats  # (rows, d, d) from queries to them: the inverse, transposed
    centre: NDArray[np.uint16]  # (rows, supers, d, 64), bits of bfloat16
    spread: NDArray[np.uint16]
    lift: Floats  # (rows, pages) log2 of the mean weight of a page's keys
    rough: NDArray[np.bool_]  # (rows, pages) pages that are always read
    lanes: NDArray[np.uint8]  # (rows, pages, outliers) places of keys that are kept apart
    far_codes: NDArray[np.uint8]  # (rows, blocks, 32 d)
    far_scales: Floats  # (rows, 64 blocks)
    done: Counts  # (rows,) pages that are summarised

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Return what `decode_by_pages` takes, in its order."""
        return (
            self.rotation, self.centre, self.spread, self.lift, self.rough, self.lanes,
            self.far_codes, self.far_scales,
        )  # fmt: skip


class KeyIndex:
    """Codes and page summaries of one layer's keys, in arrays with room for `slots` of them."""

    def __init__(self, mean: Floats, slots: int, *, bits: int = 4) -> None:
        self.mean = mean
        self.rows, self.width = mean.shape
        self.codes = np.zeros((self.rows, 0, self.width * BLOCK // 2), np.uint8)
        self.lower = self.codes.copy()  # of 8-bit codes
        self.bits = bits
        self.scales = np.zeros((self.rows, 0), np.float32)
        self.count = np.zeros(self.rows, np.int64)
        self.pages: Pages | None = None
        self.reserve(slots)

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        arrays = [self.codes, self.lower, self.scales, self.mean]
        if self.pages is not None:
            arrays += [a for a in vars(self.pages).values() if isinstance(a, np.ndarray)]
        return sum(a.nbytes for a in arrays)

    def reserve(self, slots: int) -> None:
        """Make room for `slots` keys of every row."""
        blocks = -(-slots // BLOCK)
        if blocks <= self.codes.shape[1]:
            return
        self.codes = grown(self.codes, blocks)
        if self.bits == 8:
            self.lower = grown(self.lower, blocks)
        self.scales = grown(self.scales, blocks * BLOCK)
        if self.pages is not None:
            self._reserve_pages(self.pages)

    def append(self, keys: np.ndarray, start: Counts, count: Counts) -> None:
        """Add keys until every row holds `count` of them.

        `keys` (rows, slots, d) has a row's first new key in slot `start`.
        """
        self.reserve(int(count.max()))
        pack(keys, start, self.mean, self.codes, self.lower, self.scales, self.count, count)
        self.count = count.copy()

    def decoded(self, row: int, low: int, high: int) -> Floats:
        """Keys `low` to `high` of a row as their codes have them, less the mean key."""
        first, last = low // BLOCK, -(-high // BLOCK)
        shape = (last - first, self.width // 8, BLOCK, 4)
        codes = self.codes[row, first:last].reshape(shape).astype(np.int16)
        halves = [(codes & 15) * 16, codes & 240]
        middle = 120.0
        if self.bits == 8:
            more = self.lower[row, first:last].reshape(shape)
            halves = [halves[0] + (more & 15), halves[1] + (more >> 4)]
            middle = 127.5
        numbers = np.stack(halves, axis=2)  # (blocks, chunks, 2, 64, 4)
        numbers = numbers.transpose(0, 3, 1, 2, 4).reshape(-1, self.width)
        units = self.scales[row, first * BLOCK : last * BLOCK] / 16
        keys = (numbers - np.float32(middle)) * units[:, None]
        return np.asarray(keys[low - first * BLOCK : high - first * BLOCK], np.float32)

    def summarise(self, centred: Callable[[int, int, int], Floats]) -> Pages:
        """Summarise the pages that are full; the first call decides their axes.

        `centred(row, low, high)` returns keys less the mean key.
        """
        pages = self.pages
        if pages is None:
            pages = self.pages = self._new_pages(centred)
        full = self.count // BLOCK
        for row in np.flatnonzero(full > pages.done).tolist():
            start = int(pages.done[row])
            keys = centred(row, start * BLOCK, int(full[row]) * BLOCK)
            summarise(
                keys @ pages.axes[row], start, self.codes[row], self.scales[row],
                pages.centre[row], pages.spread[row], pages.rough[row], pages.lanes[row],
                pages.far_codes[row], pages.far_scales[row],
            )  # fmt: skip
        pages.done = full
        return pages

    def _new_pages(self, centred: Callable[[int, int, int], Floats]) -> Pages:
        """Empty summaries along the principal axes of keys about the means of their pages.

        Axes are in units of the keys' deviation along them, so that a key far from its page is one
        of large norm whatever it does to the variance of its own page.
        """
        rows, d = self.mean.shape
        axes, rotation = np.empty((2, rows, d, d), np.float32)
        for row in range(rows):
            own = centred(row, 0, int(self.count[row]) // BLOCK * BLOCK)
            within = own.reshape(-1, BLOCK, d)
            within = (within - within.mean(1, keepdims=True)).reshape(-1, d)
            variance, principal = np.linalg.eigh(within.T @ within / len(within))
            deviation = np.sqrt(variance.clip(0) + RIDGE * variance.mean() + 1e-30)
            axes[row], rotation[row] = principal / deviation, principal * deviation
        empty = np.zeros((rows, 0, d, BLOCK), np.uint16)
        pages = Pages(
            axes=axes,
            rotation=rotation,
            centre=empty,
            spread=empty,
            lift=np.zeros((rows, 0), np.float32),
            rough=np.zeros((rows, 0), np.bool_),
            lanes=np.zeros((rows, 0, OUTLIERS), np.uint8),
            far_codes=np.zeros((rows, 0, d * BLOCK // 2), np.uint8),
            far_scales=np.zeros((rows, 0), np.float32),
            done=np.zeros(rows, np.int64),
        )
        self._reserve_pages(pages)
        return pages

    def _reserve_pages(self, pages: Pages) -> None:
        supers = -(-self.codes.shape[1] // BLOCK)
        pages.centre, pages.spread = grown(pages.centre, supers), grown(pages.spread, supers)
        pages.lift = grown(pages.lift, supers * BLOCK)
        pages.rough = grown(pages.rough, supers * BLOCK)
        pages.lanes = grown(pages.lanes, supers * BLOCK)
        pages.far_codes = grown(pages.far_codes, supers * OUTLIERS)
        pages.far_scales = grown(pages.far_scales, supers * OUTLIERS * BLOCK)


def zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Zeros, in large pages of memory where the system has them.

    Rows are read here and there, and each would need an entry of its own in the processor's table
    of small pages.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(shape, dtype)
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype).reshape(shape)


def grown(array: np.ndarray, size: int) -> np.ndarray:
    """Return an array whose second dimension is `size`, with zeros after what it holds."""
    larger = zeros((array.shape[0], size, *array.shape[2:]), array.dtype)
    larger[:, : array.shape[1]] = array
    return larger


def centred_keys(
    keys: np.ndarray, first: Counts, mean: Floats
) -> Callable[[int, int, int], Floats]:
    """Return a function of (row, low, high) that gives stored keys less the mean key."""

    def centred(row: int, low: int, high: int) -> Floats:
        start = int(first[row])
        part = keys[row, start + low : start + high]
        if part.dtype == np.uint16:  # bits of bfloat16
            part = (part.astype(np.uint32) << 16).view(np.float32)
        return np.asarray(part - mean[row], np.float32)

    return centred


def threshold_of(sampler: Sampler | None) -> float:
    """Return c of a sampler that the kernels know; infinite for None, which reads all keys."""
    if sampler is None:
        return float("inf")
    if sampler.threshold is not None:
        return sampler.threshold
    raise BadInput(
        f"Fast decoding draws keys by thresholds, and {sampler.name} is none; use al.Threshold(c), "
        "or sampled_attention for other samplers."
    )


def levels_of(sampler: Sampler) -> int | None:
    """Return the levels that a sampler's law is of; None for a threshold by exact weights."""
    return sampler.levels if sampler.needs_keys else None
