"""Reading of a model folder: the files that may be read, device and precision, and transformers.

Weights are safetensors, or pickled ones only when named; no code that comes with a model runs.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlimit.errors import AttnlimitError, BadInput, MissingExtra
from attnlimit.files import read_bytes

PICKLED_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
INDEX = "model.safetensors.index.json"
SAFE_TORCH = (2, 6)
"""First version whose weights_only reader runs no code (CVE-2025-32434)."""
MOST_INDEX_BYTES = 1 << 26


def check_folder(folder: Path) -> None:
    """Raise if reading the model in `folder` would read anything that is not in it, or a pickle.

    transformers follows links, joins the names in an index to the folder as they are (`..`
    included), reads a pickle that an index or `transformers_weights` names, and replaces the
    weights by those of another model when an adapter asks for it and peft is installed.
    """
    if not (folder / "config.json").is_file():
        raise BadInput(f"{folder} holds no model: it has no config.json.")
    for entry in sorted(folder.iterdir()):
        if entry.is_symlink():
            _check_link(folder, entry)
    if (folder / "adapter_config.json").exists():
        raise BadInput(
            f"{folder} holds an adapter (adapter_config.json), which names another model's "
            "weights; merge the two and save the result with save_pretrained."
        )
    check_config(read_json(folder / "config.json"), str(folder))
    if (folder / INDEX).is_file():
        for name in check_index(folder / INDEX, (".safetensors",)):
            file_inside(folder, name)


def check_config(config: dict[str, Any], name: str) -> None:
    """Raise if a model's configuration names weights that are not safetensors beside it."""
    named = config.get("transformers_weights")
    if named is not None and not (_is_plain(named) and named.endswith((".safetensors", INDEX))):
        raise BadInput(
            f"config.json of {name} names the weights {named!r}; "
            "only .safetensors files beside it are read."
        )


def check_index(index: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Return the files that an index of sharded weights names, which must be plain names."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise BadInput(f"{index} is damaged: it has no weight_map.")
    for name in weight_map.values():
        if not _is_plain(name) or not name.endswith(suffixes):
            raise BadInput(
                f"{index} names the weights {name!r}; only {' or '.join(suffixes)} files "
                "beside it are read."
            )
    return sorted(set(weight_map.values()))


def file_inside(folder: Path, name: str) -> Path:
    """Return the file called `name` in `folder`; a name or a link that leads out is refused."""
    if not _is_plain(name):
        raise BadInput(f"{name!r} is not the name of a file in {folder}; give the name alone.")
    path = folder / name
    if not path.is_file():
        raise BadInput(f"{folder} has no file {name!r}.")
    _check_link(folder, path)
    return path


def pickled_weights(folder: Path, name: str) -> list[Path]:
    """Return the pickled weights that the user named: one file, or all that an index names."""
    path = file_inside(folder, name)
    if not name.endswith(".index.json"):
        return [path]
    return [file_inside(folder, part) for part in check_index(path, PICKLED_SUFFIXES)]


def read_pickled(path: Path) -> dict[str, Tensor]:
    """Read pickled weights as tensors and nothing else: no class or function in them is used."""
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < SAFE_TORCH:
        raise AttnlimitError(
            f"Reading pickled weights safely needs torch 2.6 or newer, here is {torch.__version__}."
        )
    refused = BadInput(
        f"{path} is not loaded: it holds more than tensors, such as code that would run, or is "
        "damaged; save the model with save_pretrained where it can be trusted."
    )
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                unpacked = sum(entry.file_size for entry in archive.infolist())
            if unpacked > path.stat().st_size:  # torch.save never compresses: this is a bomb
                raise refused
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # whatever the reader stumbled over, the file is not weights alone
        raise refused from None
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    if not isinstance(state, dict) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in state.items()
    ):
        raise BadInput(f"{path} does not hold a model's weights, named tensors; give another file.")
    return state


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object that came with a model."""
    try:
        content = json.loads(read_bytes(path, MOST_INDEX_BYTES))
        if not isinstance(content, dict):
            raise ValueError("it is not an object")
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} is damaged: {error}; download the model again.") from None
    return content


def _is_plain(name: object) -> bool:
    return isinstance(name, str) and name not in ("", ".", "..") and not set(name) & set("/\\\0:")


def _check_link(folder: Path, path: Path) -> None:
    root, target = folder.resolve(), path.resolve()
    places = [root]
    # The hub's own cache: snapshots hold links to the blobs beside them.
    if root.parent.name == "snapshots" and root.parents[1].name.startswith("models--"):
        places.append(root.parents[1] / "blobs")
    if not any(place in target.parents for place in places):
        raise BadInput(
            f"{path.name} in {folder} is a link that leads out of it, to {target}; "
            "put the file itself there."
        )


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
            parts = [read_pickled(path) for path in pickled]
            state = {key: value for part in parts for key, value in part.items()}
            with torch.device("meta"):  # for its class alone: no weights are made up
                kind = type(kind.from_config(config, trust_remote_code=False))
            model, info = kind.from_pretrained(None, state_dict=state, **shared)
    except AttnlimitError:
        raise
    except Exception as error:  # a foreign file can trip the library anywhere
        raise BadInput(
            f"The model {name} cannot be loaded: {reason_of(error)}; give another."
        ) from None
    check_complete(info, name)
    model = where.put(model.eval().requires_grad_(False))
    for parameter, value in model.named_parameters():
        if not value.is_meta and not torch.isfinite(value).all():
            raise BadInput(
                f"The weights of {name} contain NaN or infinite numbers, in {parameter}; "
                "download the file again, or use another checkpoint."
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
