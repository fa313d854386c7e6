"""What if queries, keys and values come from elsewhere? Arrays of any library become a capture."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models.capture.captured import CapturedLayer
from attnlimit.models.capture.masks import Mask
from attnlimit.models.captures import Capture

SHAPES = "(N, d) for a head, (H, N, d) for a layer or (L, H, N, d) for a model"


def from_arrays(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = True,
    window: int | None = None,
    scale: float | None = None,
    tokens: Sequence[str] | None = None,
) -> Capture:
    """Make a capture of your own tensors: what `capture` gives, without a model or transformers.

    Parameters
    ----------
    q, k, v : arrays
        Of numpy, torch, or any library whose arrays have `__array__` or `__dlpack__` (JAX, MLX,
        CuPy): (N, d) for one head, (H, N, d) for a layer, (L, H, N, d) for a model. Keys and
        values may have fewer heads than queries, which then share them in groups; values may have
        a width of their own. Queries and keys as they are multiplied, after any rotation.
    causal : bool
        Whether a query sees only keys up to its own place.
    window : int, optional
        Whether it sees only keys less than so many places away.
    scale : float, optional
        Factor of <q, k>; 1 / sqrt(d) by default.
    tokens : sequence of str, optional
        Names of the N tokens.
    """
    named = {"q": q, "k": k, "v": v}
    given = {name: _tensor(value, name) for name, value in named.items()}
    wide, length = _check_shapes(given)
    kind = torch.promote_types(torch.promote_types(*(t.dtype for t in wide[:2])), wide[2].dtype)
    wide = [tensor.to(kind) for tensor in wide]
    size = given["q"].shape[-1] ** -0.5 if scale is None else checks.positive(scale, "scale")
    width = None if window is None else checks.count(window, "window")
    names = tuple(map(str, range(length))) if tokens is None else tuple(map(str, tokens))
    if len(names) != length:
        raise BadInput(f"There are {len(names)} names for {length} tokens; give one for each.")
    places = torch.arange(length)
    mask = Mask(places, bool(causal), width)
    layers = {
        number: CapturedLayer(one[0], one[1], one[2], mask, float(size))
        for number, one in enumerate(zip(*wide, strict=True))
    }
    source = {"model": "own tensors", "weights": _digest(wide), "licence": "your own", "notes": []}
    depth, heads = wide[0].shape[:2]
    return Capture(layers, names, places, places < 0, depth, heads, source)


def read_arrays(paths: Sequence[str | Path], *, causal: bool = True) -> Capture:
    """Make a capture of three files of numpy's, of queries, keys and values."""
    if len(paths) != 3:
        raise BadInput(
            f"Own tensors are three files, q.npy k.npy v.npy; got {len(paths)}. A folder that "
            "`attnlimit capture` wrote is given alone."
        )
    return from_arrays(*(_load(Path(path)) for path in paths), causal=causal)


def _load(path: Path) -> Any:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise BadInput(f"There is no file {path}.") from None
    except (OSError, ValueError, EOFError, MemoryError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0].rstrip(".")
        raise BadInput(f"{path} is not an array that numpy.save wrote: {reason}.") from None


def _tensor(value: Any, name: str) -> Tensor:
    refused = BadInput(f"{name} must be an array of real numbers, {SHAPES}; got {type(value)}.")
    if not isinstance(value, Tensor):
        try:
            value = _from_other(value)
        except Exception:  # another library's array may fail in any way
            raise refused from None
    found = value.detach().cpu()
    if found.dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        return found
    if found.is_complex() or found.dtype == torch.bool:
        raise refused
    return found.double()


def _from_other(value: Any) -> Tensor:
    array = np.asarray(value)
    if array.dtype.kind in "iuf" and array.dtype.itemsize <= 8:
        return torch.from_numpy(np.array(array, order="C"))
    return torch.from_dlpack(value)  # such as bfloat16, which numpy does not know


def _check_shapes(given: dict[str, Tensor]) -> tuple[list[Tensor], int]:
    """Return the three as (L, H, N, d), and N."""
    shapes = {name: tuple(tensor.shape) for name, tensor in given.items()}
    said = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    axes = {len(shape) for shape in shapes.values()}
    if len(axes) > 1 or not axes <= {2, 3, 4}:
        raise BadInput(f"q, k and v must all be {SHAPES}; they are {said}.")
    q, k, v = wide = [tensor[(None,) * (4 - tensor.dim())] for tensor in given.values()]
    if any(0 in tensor.shape for tensor in wide):
        raise BadInput(f"q, k and v must not be empty; they are {said}.")
    if len({tensor.shape[2] for tensor in wide}) > 1:
        raise BadInput(f"q, k and v must be of the same N tokens; they are {said}.")
    if q.shape[3] != k.shape[3]:
        raise BadInput(f"q and k must have the same width d; they are {said}.")
    if k.shape[1] != v.shape[1] or q.shape[1] % k.shape[1]:
        raise BadInput(
            "k and v must have the same number of heads, one for each group of q's; "
            f"they are {said}."
        )
    if len({tensor.shape[0] for tensor in wide}) > 1:
        raise BadInput(f"q, k and v must have the same number of layers; they are {said}.")
    if q.shape[2] < 2:
        raise BadInput("There is one token; attention over it has nothing to sample, give more.")
    for name, tensor in given.items():
        if not torch.isfinite(tensor).all():
            raise BadInput(f"{name} contains NaN or infinite numbers; remove them first.")
    return wide, int(q.shape[2])


def _digest(tensors: Sequence[Tensor]) -> str:
    """SHA-256 of all numbers: what stands where a model has that of its weights."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(str((tensor.dtype, tuple(tensor.shape))).encode())
        for layer in tensor:
            found.update(layer.contiguous().view(torch.uint8).numpy().data)
    return found.hexdigest()
