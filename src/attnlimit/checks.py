"""Validation of arguments: arrays and numbers are returned, anything else raises BadInput."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlimit.errors import BadInput

Array = NDArray[np.float64]
MAX_TOKENS = 10**15
LARGEST = 1e50
"""Largest magnitude of an entry: products of a few of them must not overflow."""


def real_array(value: ArrayLike, name: str, ndim: int | None = None) -> Array:
    """Return a finite float64 array, with `ndim` axes if that is given.

    Strings, complex numbers, objects and entries beyond `LARGEST` are refused, not converted.
    """
    array = floats(value, name)
    if ndim is not None and array.ndim != ndim:
        raise BadInput(f"{name} must have {ndim} axes, but its shape is {array.shape}.")
    if not np.isfinite(array).all():
        raise BadInput(f"{name} contains NaN or infinite entries; remove them first.")
    if np.abs(array).max(initial=0.0) > LARGEST:
        raise BadInput(f"{name} has entries beyond {LARGEST:g}; rescale it.")
    return array


def floats(value: ArrayLike, name: str) -> Array:
    """Return a float64 array, which may hold NaN and infinities; refuse what is not real."""
    try:
        given = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"{name} must be an array of real numbers: {error}.") from None
    if given.dtype.kind not in "iufb":
        raise BadInput(f"{name} must be an array of real numbers, got {_described(given)}.")
    return given.astype(np.float64)


def _described(array: NDArray[Any]) -> str:
    """The kind of an array that is not one of real numbers."""
    kinds = {"c": "complex numbers", "U": "strings", "S": "bytes"}
    return kinds.get(array.dtype.kind, f"entries of type {array.dtype}")


def vectors(value: ArrayLike, dim: int, name: str, why: str = "the tokens' dimension") -> Array:
    """Return a finite array whose last axis has length `dim`."""
    array = real_array(value, name)
    if array.ndim == 0 and dim == 1:
        array = array[None]
    if array.ndim == 0 or array.shape[-1] != dim:
        raise BadInput(
            f"{name} must have a last axis of length {dim} ({why}), but the shape is {array.shape}."
        )
    return array


def rows(value: ArrayLike, dim: int, name: str, why: str) -> Array:
    """Return one or several vectors as rows of shape (m, dim), m at least 1."""
    array = np.atleast_2d(vectors(value, dim, name, why))
    if array.ndim != 2 or len(array) == 0:
        raise BadInput(
            f"{name} must be one vector of length {dim} or rows of them, at least one, "
            f"but its shape is {array.shape}."
        )
    return array


def query_rows(x: ArrayLike, dim: int) -> Array:
    """Return one or several queries as rows of shape (m, dim), m at least 1."""
    return rows(x, dim, "x", "the columns of A")


def broadcast(**arrays: NDArray[Any]) -> list[NDArray[Any]]:
    """Return copies of the named arrays, broadcast against each other."""
    try:
        return [array.copy() for array in np.broadcast_arrays(*arrays.values())]
    except ValueError:
        shapes = " and ".join(f"{array.shape}" for array in arrays.values())
        names = " and ".join(arrays)
        raise BadInput(f"{names} must broadcast, but their shapes are {shapes}.") from None


def token_counts(n: ArrayLike, name: str = "n", smallest: int = 2) -> NDArray[np.int64]:
    """Return token counts as int64, all at least `smallest`."""
    array = floats(n, name)
    if array.size == 0:
        raise BadInput(f"{name} is empty; give at least one number of tokens.")
    if not np.isfinite(array).all() or (array != np.round(array)).any():
        raise BadInput(f"{name} must be whole numbers of tokens, got {n!r}.")
    if array.min() < smallest:
        raise BadInput(f"{name} must be at least {smallest} tokens, got {array.min():g}.")
    if array.max() > MAX_TOKENS:
        raise BadInput(f"{name} must be at most {MAX_TOKENS:.0e} tokens, got {array.max():g}.")
    return array.astype(np.int64)


def token_list(n: ArrayLike) -> NDArray[np.int64]:
    """Return one or several token counts as a list of them, each at least 2."""
    counts = np.atleast_1d(token_counts(n))
    if counts.ndim > 1:
        raise BadInput(f"n must be a list of numbers of tokens, but its shape is {counts.shape}.")
    return counts


def count(value: object, name: str, smallest: int = 1) -> int:
    """Return a whole number that is at least `smallest`."""
    is_whole = isinstance(value, (int, np.integer)) or (
        isinstance(value, float) and value.is_integer()
    )
    if not is_whole or isinstance(value, bool):
        raise BadInput(f"{name} must be a whole number, got {value!r}.")
    number = int(value)  # type: ignore[call-overload]
    if number < smallest:
        raise BadInput(f"{name} must be at least {smallest}, got {number}.")
    if number >= 2**63:
        raise BadInput(f"{name} must be below 2^63, got {number:g}.")
    return number


def positive(value: object, name: str) -> float:
    """Return a finite number above zero, between 1/LARGEST and LARGEST."""
    number = real_number(value, name)
    if not 1 / LARGEST <= number <= LARGEST:
        size = f"between {1 / LARGEST:g} and {LARGEST:g}"
        raise BadInput(f"{name} must be positive, {size}, got {number:g}.")
    return number


def not_negative(value: object, name: str) -> float:
    """Return a finite number that is zero or more."""
    number = real_number(value, name)
    if not 0 <= number <= LARGEST:
        raise BadInput(f"{name} must lie between 0 and {LARGEST:g}, got {number:g}.")
    return number


def probability(value: object, name: str) -> float:
    """Return a number strictly between 0 and 1."""
    number = real_number(value, name)
    if not 0 < number < 1:
        raise BadInput(f"{name} must lie strictly between 0 and 1, got {number}.")
    return number


def real_number(value: object, name: str) -> float:
    """Return one finite real number."""
    several = isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 0
    if isinstance(value, (str, bytes, bool)) or several:
        raise BadInput(f"{name} must be a real number, got {value!r}.")
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise BadInput(f"{name} must be a real number, got {value!r}.") from None
    if not np.isfinite(number):
        raise BadInput(f"{name} must be finite, got {number}.")
    return number


def one_of(value: str, allowed: tuple[str, ...], name: str) -> str:
    """Return `value` if it is one of `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        raise BadInput(f"{name} must be one of {', '.join(allowed)}; got {value!r}.")
    return value


def call_fits(
    function: Callable[..., object], given: Sequence[object], named: Mapping[str, object], name: str
) -> None:
    """Raise unless `function` takes these after its first; the sentence names those it takes."""
    first, *taken = signature(function).parameters.values()
    try:
        signature(function).bind(first, *given, **named)
    except TypeError as error:
        listed = ", ".join(
            p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in taken
        )
        raise BadInput(f"{name} takes {listed}: {error}.") from None


def mixture_weights(value: ArrayLike, length: int, name: str) -> Array:
    """Return `length` non-negative weights that sum to one."""
    weights = real_array(value, name, ndim=1)
    if len(weights) != length:
        raise BadInput(f"{name} must have {length} entries, one for each, got {len(weights)}.")
    if (weights < 0).any():
        raise BadInput(f"{name} must not be negative, got {weights.min():.3g}.")
    if abs(weights.sum() - 1) > 1e-8:
        raise BadInput(f"{name} must sum to one, but they sum to {weights.sum():.6g}.")
    return weights / weights.sum()
