"""Device, precision, and reading of a model by transformers: safetensors and JSON, no code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from attnlimit.errors import AttnlimitError, BadInput, MissingExtra
from attnlimit.models.loading import files

SEVERAL = "several"
DEVICES = ("auto", "cpu", "cuda", "mps", SEVERAL)
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model")


def transformers_library() -> Any:
    """Import transformers, quietly, or raise MissingExtra with the extra to install."""
    try:
        import transformers
    except ImportError:
        raise MissingExtra(
            "Real models need transformers: run `pip install 'attnlimit[models]'`."
        ) from None
    transformers.logging.set_verbosity_error()
    return transformers


@dataclass(frozen=True)
class Placement:
    """An available device and a precision it supports; None keeps that of the weights."""

    device: str
    dtype: torch.dtype | None

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
    """Check a device and a precision, as `load` takes them, against what this machine supports."""
    here = devices_here()
    where = here[0] if device == "auto" else device
    if where not in (*here, SEVERAL):
        if not isinstance(where, str) or where.partition(":")[0] not in DEVICES:
            raise BadInput(f"device must be one of {', '.join(DEVICES)}; got {device!r}.")
        raise BadInput(f"There is no device {where!r} on this machine; there is {', '.join(here)}.")
    if where == SEVERAL and find_spec("accelerate") is None:
        raise MissingExtra(
            "A model on several devices needs accelerate: run `pip install 'attnlimit[models]'`."
        )
    kind = None
    if dtype is not None:
        kind = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
        if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
            raise BadInput(
                f"dtype must be float32, bfloat16, float16 or float64, got {str(dtype)[:40]!r}."
            )
        _check_can("cpu" if where == SEVERAL else where, kind)
    return Placement(where, kind)


def devices_here() -> list[str]:
    """Devices of this machine, the best first."""
    cuda = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    mps = ["mps"] if torch.backends.mps.is_available() else []
    return [*(["cuda", *cuda] if cuda else []), *mps, "cpu"]


def _check_can(device: str, dtype: torch.dtype) -> None:
    """Raise unless the device runs attention in this precision."""
    try:
        ones = torch.ones(1, 1, 2, 2, device=device).to(dtype)
        torch.nn.functional.scaled_dot_product_attention(ones @ ones, ones, ones)
    except (RuntimeError, TypeError, NotImplementedError):
        name = str(dtype).removeprefix("torch.")
        raise BadInput(
            f"{device} cannot run a model in {name}; choose float32, bfloat16 or float16."
        ) from None


def read_model(
    source: Path | str,
    name: str,
    where: Placement,
    *,
    local: bool = True,
    pickled: list[Path] | None = None,
) -> tuple[Any, Any | None, tuple[str, ...]]:
    """Return the model, its tokenizer, and notes on its precision and why there is none."""
    transformers = transformers_library()
    transformers.utils.logging.disable_progress_bar()
    options = {"local_files_only": local, "trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(source, **options)
        kind = _class_for(transformers, config)
        shared = {"config": config, "output_loading_info": True, "dtype": where.dtype or "auto"}
        if where.device == SEVERAL:
            shared["device_map"] = "auto"
        if pickled is None:
            model, info = kind.from_pretrained(source, use_safetensors=True, **shared, **options)
        else:
            parts = [files.read_pickled(path) for path in pickled]
            state = {key: value for part in parts for key, value in part.items()}
            with torch.device("meta"):  # for its class alone: no weights are made up
                kind = type(kind.from_config(config, trust_remote_code=False))
            model, info = kind.from_pretrained(None, state_dict=state, **shared)
    except AttnlimitError:
        raise
    except Exception as error:  # a foreign file can trip the library anywhere
        raise BadInput(f"The model {name} cannot be loaded: {reason_of(error)}.") from None
    check_complete(info, name)
    model = where.put(model.eval().requires_grad_(False))
    for parameter, value in model.named_parameters():
        if not value.is_meta and not torch.isfinite(value).all():
            raise BadInput(
                f"The weights of {name} contain NaN or infinite numbers, in {parameter}; "
                "the file is damaged or training diverged."
            )
    notes: tuple[str, ...] = ()
    if where.dtype is None and model.dtype.itemsize < 4:
        kept = str(model.dtype).removeprefix("torch.")
        notes = (f"runs in {kept}, as its weights are stored; --dtype float32 rounds less",)
    if isinstance(source, Path) and not any((source / file).is_file() for file in TOKENIZER_FILES):
        return model, None, notes  # transformers would make up an empty one that reads no word
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
    except Exception as error:  # an image model, or a damaged file: inputs other than text work
        return model, None, (*notes, f"no tokenizer: {reason_of(error)}")
    return model, tokenizer, notes


def check_complete(info: Mapping[str, Any], name: str) -> None:
    """Raise if weights are missing, which the library fills with noise."""
    if missing := sorted(key for key in info["missing_keys"] if "pooler" not in key):
        raise BadInput(
            f"The weights of {name} are incomplete: {len(missing)} are missing, such as "
            f"{missing[0]}."
        )


def reason_of(error: Exception) -> str:
    """One line on what went wrong in another library."""
    text = str(error)
    if "trust_remote_code" in text:
        return "it needs code that comes with it, which is never run"
    first = text.strip().split("\n")[0].rstrip(".")[:300]
    readable = isinstance(error, (OSError, ValueError, RuntimeError)) and first
    return first if readable else f"{type(error).__name__} {first}".rstrip()


def _class_for(transformers: Any, config: Any) -> Any:
    architecture = next(iter(getattr(config, "architectures", None) or [""]))
    if "CausalLM" in architecture or "LMHead" in architecture:
        return transformers.AutoModelForCausalLM
    if getattr(config, "is_encoder_decoder", False):
        return transformers.AutoModelForTextEncoding
    return transformers.AutoModel
