"""Where does a model run, and in what precision? Asked of the machine before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from attnlimit.errors import BadInput, MissingExtra

SEVERAL = "several"
DEVICES = ("auto", "cpu", "cuda", "mps", SEVERAL)


@dataclass(frozen=True)
class Placement:
    """A device that is there, and a precision that it can do; None keeps that of the weights."""

    device: str
    dtype: torch.dtype | None

    def options(self) -> dict[str, Any]:
        """What transformers is told when it reads the weights."""
        dtype = {"dtype": "auto" if self.dtype is None else self.dtype}
        if self.device != SEVERAL:
            return dtype
        try:
            import accelerate  # noqa: F401
        except ImportError:
            raise MissingExtra(
                "A model on several devices needs accelerate: "
                "run `pip install 'attnlimit[models]'`."
            ) from None
        return {**dtype, "device_map": "auto"}

    def put(self, network: Any) -> Any:
        """Move a model to its device; one on several is there already."""
        if self.device == SEVERAL:
            return network
        _check_can(self.device, network.dtype)
        try:
            return network.to(self.device)
        except torch.OutOfMemoryError:
            raise BadInput(
                f"The model does not fit on {self.device}; spread it with device='{SEVERAL}' "
                f"(--device {SEVERAL}), or choose a smaller dtype."
            ) from None


def placement(device: str = "auto", dtype: str | torch.dtype | None = None) -> Placement:
    """Check a device and a precision by what this machine can do.

    Parameters
    ----------
    device : {"auto", "cpu", "cuda", "mps", "several"}
        "auto" is the first that is there of cuda, mps and cpu; "cuda:1" names one of several.
        "several" spreads a model that is larger than one device over all of them, the memory of
        the machine and its disk.
    dtype : str or torch.dtype, optional
        "float32", "bfloat16", "float16" or "float64"; by default that of the weights.
    """
    where = _device(device)
    kind = None if dtype is None else _precision(dtype)
    if kind is not None:
        _check_can("cpu" if where == SEVERAL else where, kind)
    return Placement(where, kind)


def devices_here() -> list[str]:
    """Devices of this machine, the best first."""
    found = ["cuda"] if torch.cuda.is_available() else []
    return [*found, *(["mps"] if torch.backends.mps.is_available() else []), "cpu"]


def _device(name: str) -> str:
    here = devices_here()
    if name == "auto":
        return here[0]
    if name == SEVERAL or name in here:
        return name
    kind, _, number = name.partition(":") if isinstance(name, str) else ("", "", "")
    if kind == "cuda" and kind in here and number.isdecimal():
        if int(number) < torch.cuda.device_count():
            return name
    elif kind not in DEVICES:
        raise BadInput(f"device must be one of {', '.join(DEVICES)}; got {name!r}.")
    raise BadInput(f"There is no device {name!r} on this machine; there is {', '.join(here)}.")


def _precision(dtype: str | torch.dtype) -> torch.dtype:
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise BadInput(
            f"dtype must be float32, bfloat16, float16 or float64, got {str(dtype)[:40]!r}."
        )
    return found


def _check_can(device: str, dtype: torch.dtype) -> None:
    """Raise unless the device can do what attention is made of, in this precision."""
    try:
        ones = torch.ones(1, 1, 2, 2, device=device).to(dtype)
        torch.nn.functional.scaled_dot_product_attention(ones @ ones, ones, ones)
    except (RuntimeError, TypeError, NotImplementedError):
        name = str(dtype).removeprefix("torch.")
        raise BadInput(
            f"{device} cannot run a model in {name}; choose float32, bfloat16 or float16."
        ) from None
