"""Kernels of a cache's rows: key index, rounded values, page summaries, and reading of single rows.

Keys of one sequence and key-value head are a row. An index has 4 bits of every key and one scale;
of pages of 64 keys it has the mean and variance of each coordinate, and keys that are far from the
others apart. Stores are arrays of numbers, or codes with their scales.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import torch  # noqa: F401  # its threads are shared
from numba import njit, types
from numba.extending import overload

from attnlimit.decoding.dot import BLOCK, prefetch

F, U = np.float32, np.uint32
OUTLIERS = 2
"""Keys of a page that are kept apart, because they are far from the others."""
ROUGH = F(2.0)
"""Squared distance of a key from its page, over that of an average key, past which the page is
always read: neither its mean and variance nor `OUTLIERS` keys tell what its largest key weighs."""
STEPS = F(127.5 / 16)
"""Steps of a 4-bit code between zero and the largest number of a key. The code is the upper half of
an 8-bit one, (u - 127.5) / 16 steps, whose lower half a cache in 8 bits holds too."""
OPTIONS: Any = {"fastmath": True, "error_model": "numpy"}
INNER: Any = {**OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Options of functions that only other kernels call; they compile a tenth faster."""


def share_threads() -> None:
    """Have numba run its loops on the threads of torch's OpenMP, where that is GNU's.

    Each of them would have threads of its own otherwise, and those of torch, which wait for work
    without sleeping, would be in the way of numba's for a while.
    """
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return
    loaded = {line.split()[-1] for line in lines if "libgomp" in line and "torch" in line}
    if len(loaded) == 1:
        ctypes.CDLL(loaded.pop(), mode=ctypes.RTLD_GLOBAL)


share_threads()


def widen(number):
    """Return a float32 from a stored number: float32, or the bits of a bfloat16."""


@overload(widen, inline="always")
def _widen(number):
    if number == types.float32:
        return lambda number: number
    return lambda number: U(U(number) << U(16)).view(np.float32)


@njit(inline="always")
def code_of(number, unit):
    """8-bit code of a number, whose 4-bit step is `unit`."""
    return np.uint8(min(F(255), max(F(0), F(np.floor(F(16) * number / unit + F(128))))))


@njit(**INNER)
def pack_key(key, mean, codes, lower, lane):
    """Write the 4-bit codes of a key among those of its block; return its scale.

    `lower` takes the lower halves of 8-bit codes, if it has room for them.
    """
    size = F(1e-30)
    for i in range(len(key)):
        size = max(size, abs(widen(key[i]) - mean[i]))
    unit = size / STEPS
    for chunk in range(len(key) // 8):
        at = 4 * BLOCK * chunk + 4 * lane
        for t in range(4):
            i = 8 * chunk + t
            low = code_of(widen(key[i]) - mean[i], unit)
            high = code_of(widen(key[i + 4]) - mean[i + 4], unit)
            codes[at + t] = np.uint8((low >> 4) | (high & 240))
            if len(lower):
                lower[at + t] = np.uint8((low & 15) | ((high & 15) << 4))
    return unit


@njit(cache=True, **OPTIONS)
def pack(keys, first, mean, codes, lower, scales, low, high):
    """Write the codes of keys `low[row]` to `high[row]`, with one scale a key.

    `keys` (rows, slots, d) holds key `low[row]` of a row in slot `first[row]`.
    """
    for row in range(len(keys)):
        for j in range(low[row], high[row]):
            own = codes[row, j // BLOCK]
            other = lower[row, j // BLOCK] if lower.shape[1] else lower[row].reshape(-1)
            key = keys[row, first[row] + j - low[row]]
            scales[row, j] = pack_key(key, mean[row], own, other, j % BLOCK)


@njit(cache=True, **OPTIONS)
def pack_values(values, first, codes, scales, low, high):
    """Write values `low[row]` to `high[row]` in 8 bits, or in 4 where two share a byte.

    The numbers of a value that share a scale, a bfloat16, are next to each other. The largest of
    them has the lowest code, as in llama.cpp's q4_0, and zero is a code: with middles of steps as
    codes, small numbers of one sign would have an error of one sign in all keys.
    """
    width, room, groups = values.shape[2], codes.shape[2], scales.shape[2]
    group, half = width // groups, F(128 if codes.shape[2] == values.shape[2] else 8)
    for row in range(len(values)):
        for j in range(low[row], high[row]):
            value = values[row, first[row] + j - low[row]]
            for g in range(groups):
                widest = F(1e-30)
                for i in range(g * group, g * group + group):
                    if abs(widen(value[i])) > abs(widest):
                        widest = widen(value[i])
                scales[row, j, g] = narrow(-widest / half)
                unit = widen(scales[row, j, g])
                for i in range(g * group, g * group + group):
                    place = F(np.floor(widen(value[i]) / unit + half + F(0.5)))
                    code = np.uint8(min(half + half - F(1), max(F(0), place)))
                    if i < room:
                        codes[row, j, i] = code
                    else:
                        codes[row, j, i - room] |= np.uint8(code << 4)


@njit(inline="always")
def narrow(number):
    """Bits of the nearest bfloat16."""
    return np.uint16(U(F(number).view(np.uint32) + U(0x8000)) >> U(16))


@njit(**INNER)
def moments(turned, near, count, m, v):
    """Mean and variance of a page's keys, those whose `near` is 0 left out."""
    m[:] = 0
    v[:] = 0
    for j in range(BLOCK):
        for i in range(len(m)):
            m[i] += turned[j, i] * near[j]
    for i in range(len(m)):
        m[i] /= count
    for j in range(BLOCK):
        for i in range(len(m)):
            v[i] += (turned[j, i] - m[i]) ** 2 * near[j]
    for i in range(len(m)):
        v[i] /= count


@njit(**INNER)
def summarise_page(turned, centre, spread, lanes):
    """Mean and variance of 64 keys, and the lanes of those that are left out as too far.

    Returns whether one more is too far.
    """
    d = turned.shape[1]
    near, m, v = np.ones(BLOCK, F), np.empty(d, F), np.empty(d, F)
    moments(turned, near, F(BLOCK), m, v)
    for number in range(OUTLIERS + 1):
        farthest, at = F(-1), 0
        for j in range(BLOCK):
            x = F(0)
            for i in range(d):
                gap = turned[j, i] - m[i]
                x += gap * gap
            if x * near[j] > farthest:
                farthest, at = x * near[j], j
        if number < OUTLIERS:
            near[at] = 0
            lanes[number] = at
            moments(turned, near, F(BLOCK - 1 - number), m, v)
    for i in range(d):
        centre[i], spread[i] = narrow(m[i]), narrow(v[i])
    return farthest > ROUGH * d


@njit(cache=True, **OPTIONS)
def summarise(turned, start, codes, scales, centre, spread, rough, lanes, far_codes, far_scales):
    """Write means and variances of a row's pages from `start` on, and keep far keys apart.

    `turned` (keys, d) are the keys from page `start` on, along the axes of the summaries. The keys
    of a page farthest from its mean are left out and copied to blocks of their own.
    """
    for number in range(len(turned) // BLOCK):
        page = start + number
        block, lane = page // BLOCK, page % BLOCK
        own = turned[number * BLOCK : number * BLOCK + BLOCK]
        rough[page] = summarise_page(
            own, centre[block, :, lane], spread[block, :, lane], lanes[page]
        )
        for outlier in range(OUTLIERS):
            place, far = OUTLIERS * page + outlier, lanes[page, outlier]
            far_scales[place] = scales[page * BLOCK + far]
            for chunk in range(turned.shape[1] // 8):
                to = 4 * BLOCK * chunk + 4 * (place % BLOCK)
                at = 4 * BLOCK * chunk + 4 * far
                for t in range(4):
                    far_codes[place // BLOCK, to + t] = codes[page, at + t]


def row_of(store, row):
    """Return one row of what is stored: of an array, or of each array of a tuple."""


@overload(row_of, inline="always")
def _row_of(store, row):
    if not isinstance(store, types.BaseTuple):
        return lambda store, row: store[row]
    if len(store) == 2:
        return lambda store, row: (store[0][row], store[1][row])
    return lambda store, row: (store[0][row], store[1][row], store[2][row])


def prefetch_row(store, slot):
    """Have a stored key or value fetched that will be read soon."""


@overload(prefetch_row)
def _prefetch_row(store, slot):
    if isinstance(store, types.BaseTuple):
        return lambda store, slot: None
    return lambda store, slot: prefetch(store, slot * store.shape[1], store.shape[1])


def product_with_key(query, keys, slot, place, mean):
    """Product of a query with a stored key less the mean key."""


@overload(product_with_key)
def _product_with_key(query, keys, slot, place, mean):
    if not isinstance(keys, types.BaseTuple):

        def whole(query, keys, slot, place, mean):
            x = F(0)
            for i in range(len(query)):
                x += query[i] * (widen(keys[slot, i]) - mean[i])
            return x

        return whole

    def coded(query, keys, slot, place, mean):
        codes, lower, scales = keys
        block, lane = place // BLOCK, place % BLOCK
        x, total = F(0), F(0)
        for chunk in range(len(query) // 8):
            at = 4 * BLOCK * chunk + 4 * lane
            for t in range(4):
                own = codes[block, at + t]
                low, high = F(16 * (own & 15)), F(own & 240)
                if len(lower):
                    more = lower[block, at + t]
                    low += F(more & 15)
                    high += F(more >> 4)
                first, second = query[8 * chunk + t], query[8 * chunk + 4 + t]
                x += first * low + second * high
                total += first + second
        middle = F(127.5) if len(lower) else F(120)
        return (x - middle * total) * (scales[place] / F(16))

    return coded


def read_value(values, slot, place, out):
    """Write a stored value, as float32, to `out`."""


@overload(read_value)
def _read_value(values, slot, place, out):
    if not isinstance(values, types.BaseTuple):

        def whole(values, slot, place, out):
            for i in range(len(out)):
                out[i] = widen(values[slot, i])

        return whole

    def coded(values, slot, place, out):
        codes, scales = values
        room, group = codes.shape[1], len(out) // scales.shape[1]
        for i in range(len(out)):
            unit = widen(scales[place, i // group])
            if room == len(out):
                out[i] = (F(codes[place, i]) - F(128)) * unit
            else:
                both = codes[place, i % room]
                out[i] = (F(both & 15 if i < room else both >> 4) - F(8)) * unit

    return coded
