"""Turn what a user gave into arrays and numbers, or say in one sentence what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlimit.errors import BadInput

Array = NDArray[np.float64]
MAX_TOKENS = 10**15


def real_array(value: ArrayLike, name: str, ndim: int | None = None) -> Array:
    """Return a finite float64 array, with `ndim` axes if that is given."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{name} must be an array of real numbers: {error}.") from None
    if ndim is not None and array.ndim != ndim:
        raise BadInput(f"{name} must have {ndim} axes, but its shape is {array.shape}.")
    if not np.isfinite(array).all():
        raise BadInput(f"{name} contains NaN or infinite entries; remove them first.")
    return array


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


def token_counts(n: ArrayLike, name: str = "n", smallest: int = 2) -> NDArray[np.int64]:
    """Return token counts as int64, all at least `smallest`."""
    array = np.asarray(n)
    if array.size == 0:
        raise BadInput(f"{name} is empty; give at least one number of tokens.")
    real = array.dtype.kind in "iuf" and np.isfinite(array).all()
    if not real or (array != np.round(array)).any():
        raise BadInput(f"{name} must be whole numbers of tokens, got {n!r}.")
    if array.min() < smallest:
        raise BadInput(f"{name} must be at least {smallest} tokens, got {array.min()}.")
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
    return number


def positive(value: object, name: str) -> float:
    """Return a finite number above zero."""
    number = real_number(value, name)
    if number <= 0:
        raise BadInput(f"{name} must be positive, got {number}.")
    return number


def not_negative(value: object, name: str) -> float:
    """Return a finite number that is zero or more."""
    number = real_number(value, name)
    if number < 0:
        raise BadInput(f"{name} must not be negative, got {number}.")
    return number


def probability(value: object, name: str) -> float:
    """Return a number strictly between 0 and 1."""
    number = real_number(value, name)
    if not 0 < number < 1:
        raise BadInput(f"{name} must lie strictly between 0 and 1, got {number}.")
    return number


def real_number(value: object, name: str) -> float:
    """Return one finite real number."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise BadInput(f"{name} must be a real number, got {value!r}.") from None
    if not np.isfinite(number):
        raise BadInput(f"{name} must be finite, got {number}.")
    return number


def one_of(value: str, allowed: tuple[str, ...], name: str) -> str:
    """Return `value` if it is one of `allowed`."""
    if value not in allowed:
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


def covariance_matrix(value: ArrayLike, name: str) -> Array:
    """Return a symmetric positive semi-definite matrix, rank-deficient ones included."""
    matrix = real_array(value, name, ndim=2)
    if matrix.shape[0] != matrix.shape[1]:
        raise BadInput(f"{name} must be square, but its shape is {matrix.shape}.")
    if matrix.size == 0:
        raise BadInput(f"{name} is empty; tokens need at least one dimension.")
    size = np.abs(matrix).max()
    if np.abs(matrix - matrix.T).max() > 1e-8 * size:
        raise BadInput(f"{name} must be symmetric; symmetrise it with (C + C.T) / 2.")
    matrix = (matrix + matrix.T) / 2
    smallest = float(np.linalg.eigvalsh(matrix)[0])
    if smallest < -1e-8 * size:
        raise BadInput(
            f"{name} must be positive semi-definite, but its smallest eigenvalue is {smallest:.3g}."
        )
    return matrix


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
