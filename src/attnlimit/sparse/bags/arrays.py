"""How is one bag read from its file? As an array (instances, dim), and no pickle is ever run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from attnlimit.checks import Array
from attnlimit.errors import BadInput, MissingExtra

SUFFIXES = (".npy", ".npz", ".pt", ".pth", ".h5", ".hdf5")
NAMES = ("features", "feats", "instances", "x")
"""What the array is called in a file that holds several."""


def read_array(file: Path) -> Array:
    """Return the array in a file; of several, the one that is called features."""
    try:
        return np.asarray(_READERS[file.suffix.lower()](file), dtype=np.float64)
    except MissingExtra:
        raise
    except Exception as error:  # a damaged file can trip its reader anywhere
        raise BadInput(f"{file} could not be read as an array: {reason(error)}.") from None


def reason(error: Exception) -> str:
    """First line of what an error says."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _npy(file: Path) -> Any:
    return np.load(file, allow_pickle=False)


def _npz(file: Path) -> Any:
    with np.load(file, allow_pickle=False) as held:
        return held[_chosen(held.files)]


def _torch(file: Path) -> Any:
    import torch

    held = torch.load(file, map_location="cpu", weights_only=True)
    if isinstance(held, dict):
        held = held[_chosen([str(key) for key in held])]
    return held.detach().double().numpy()


def _hdf5(file: Path) -> Any:
    try:
        import h5py
    except ImportError:
        raise MissingExtra(
            ".h5 files need h5py; install it with: pip install 'attnlimit[bags]'"
        ) from None
    with h5py.File(file, "r") as held:
        return held[_chosen([key for key in held if isinstance(held[key], h5py.Dataset)])][()]


def _chosen(names: list[str]) -> str:
    known = [name for name in names if name.lower() in NAMES]
    if len(names) != 1 and len(known) != 1:
        some = ", ".join(map(repr, names[:6])) or "nothing"
        raise ValueError(f"it holds {some}; call the array of instances 'features'")
    return known[0] if known else names[0]


_READERS = {
    ".npy": _npy, ".npz": _npz, ".pt": _torch, ".pth": _torch, ".h5": _hdf5, ".hdf5": _hdf5,
}  # fmt: skip
