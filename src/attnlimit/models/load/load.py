"""Where does a model come from? A bundled name, a local folder, or a hub id when online."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch

from attnlimit.errors import AttnlimitError, BadInput, MissingExtra
from attnlimit.files import digest
from attnlimit.models.load import files
from attnlimit.models.load.bundled import BUNDLED, Bundled
from attnlimit.models.load.device import Placement, placement
from attnlimit.models.load.read import read_model, reason_of, transformers_library

HUB_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?", re.ASCII)


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A transformer ready to be captured, with where it came from."""

    name: str
    model: Any  # transformers.PreTrainedModel
    tokenizer: Any | None
    weights: str  # SHA-256 of the weights
    source: str
    licence: str = "unknown"
    notes: tuple[str, ...] = ()

    @property
    def positions(self) -> int | None:
        """Longest sequence the model takes, special tokens included; None if unlimited."""
        return max_positions(self.model)

    @property
    def dtype(self) -> torch.dtype:
        """Precision that the model runs in."""
        return self.model.dtype

    @property
    def device(self) -> torch.device:
        """Where it runs; its first layers, if that is on several devices."""
        return self.model.device

    @property
    def causal(self) -> bool:
        """Whether the model predicts the next token."""
        return "CausalLM" in type(self.model).__name__ or "LMHead" in type(self.model).__name__

    def ids(self, text: str, most: int | None = None) -> list[int]:
        """Return the tokens of a text, the first `most`; a text that is cut keeps its end mark."""
        if self.tokenizer is None:
            raise BadInput(f"{self.name} has no tokenizer; give a model that reads text.")
        ids = self.tokenizer(text, verbose=False)["input_ids"]
        if most is not None and len(ids) > most and not self.causal:
            ids = [*ids[: most - 1], ids[-1]]
        return [int(one) for one in ids[:most]]

    def __repr__(self) -> str:
        config = self.model.config
        return (
            f"LoadedModel({self.name!r}, {type(self.model).__name__}, "
            f"layers={config.num_hidden_layers}, heads={config.num_attention_heads}, "
            f"positions={self.positions}, weights={self.weights[:12]})"
        )


def load(
    name: str | os.PathLike[str],
    pickled: str | None = None,
    *,
    device: str = "auto",
    dtype: str | torch.dtype | None = None,
) -> LoadedModel:
    """Load a model and its tokenizer, ready for `capture`.

    Parameters
    ----------
    name : str or path
        "minilm" or "smollm2" (weights inside installed packages, verified by hash), a local folder
        that `save_pretrained` wrote, or a Hugging Face hub id when online. Weights are read from
        safetensors only, and code that comes with a model is never run. The network is used for a
        hub id and for nothing else; what looks like a path is never taken for one.
    pickled : str, optional
        The one file of pickled weights in a local folder that may be read all the same, such as
        "pytorch_model.bin" (or the index of several). Only tensors are taken from it.
    device : {"auto", "cpu", "cuda", "mps", "several"}
        Where the model runs; laws run in this machine's memory, in float64. "several" spreads a
        model that is larger than one device (accelerate's device_map="auto").
    dtype : str or torch.dtype, optional
        "float32", "bfloat16", "float16" or "float64"; by default that of the weights, and a note
        says so where it is less than float32.
    """
    where = placement(device, dtype)
    text = os.fspath(name)
    if not text.strip():
        raise BadInput("The model's name is empty; give minilm, smollm2, a folder or a hub id.")
    if text in BUNDLED and isinstance(name, str):
        _no_pickled(pickled, text)
        return _load_bundled(BUNDLED[text], where)
    try:
        folder = Path(text).expanduser()
        is_folder, exists = folder.is_dir(), folder.exists()
    except (OSError, RuntimeError) as error:  # a name too long, no such user's home
        reason = str(getattr(error, "strerror", None) or error).rstrip(".")
        raise BadInput(f"There is no model at {text[:200]!r}: {reason}.") from None
    if is_folder:
        return _load_folder(folder, pickled, where)
    if exists:
        raise BadInput(f"{text} is a file; give the folder that save_pretrained wrote.")
    looks_like_path = text.startswith((".", "/", "~")) or text.endswith("/") or "\\" in text
    if not isinstance(name, str) or looks_like_path or text.count("/") > 1 or folder.is_absolute():
        raise BadInput(f"There is no folder {text[:200]!r}; a model's folder must exist.")
    if not HUB_ID.fullmatch(text):
        raise BadInput(f"{text[:200]!r} is neither a bundled name, a folder, nor a hub id.")
    close = get_close_matches(text, BUNDLED, n=1, cutoff=0.8)
    if close:
        raise BadInput(
            f"There is no model {text!r}; did you mean {close[0]}? A hub id is written owner/name."
        )
    _no_pickled(pickled, text)
    return _load_hub(text, where)


@lru_cache(maxsize=2)
def load_once(
    name: str, pickled: str | None = None, device: str = "auto", dtype: str | None = None
) -> LoadedModel:
    """Load a model once in a process."""
    return load(name, pickled, device=device, dtype=dtype)


def _no_pickled(pickled: str | None, name: str) -> None:
    if pickled is not None:
        raise BadInput(f"Pickled weights are read from local folders only; {name!r} is not one.")


def cache_folder() -> Path:
    """Where converted weights are kept: $ATTNLIMIT_CACHE, or the user's cache folder."""
    if chosen := os.environ.get("ATTNLIMIT_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attnlimit"


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def max_positions(model: Any) -> int | None:
    """Longest sequence a model's positions allow; None for relative positions."""
    config = model.config
    limit = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    if config.model_type in ("t5", "mt5", "umt5") or limit is None:
        return None
    # RoBERTa and its kin start counting positions after the padding index.
    offset = getattr(getattr(model.base_model, "embeddings", None), "padding_idx", None)
    return int(limit) - (offset + 1 if offset is not None else 0)


def _load_bundled(bundled: Bundled, where: Placement) -> LoadedModel:
    transformers_library()
    path = bundled.require()
    found = file_hash(path)
    if found != bundled.sha256:
        raise AttnlimitError(
            f"The weights of {bundled.name!r} in {path} have SHA-256 {found[:12]}..., not "
            f"{bundled.sha256[:12]}...: reinstall {bundled.package}."
        )
    folder = path.parent if path.suffix == ".safetensors" else _converted(bundled, path)
    model, tokenizer, problem = read_model(folder, bundled.name, where)
    source, notes = f"package {bundled.package}", tuple(filter(None, (bundled.note, *problem)))
    return LoadedModel(bundled.name, model, tokenizer, found, source, bundled.licence, notes)


def _converted(bundled: Bundled, path: Path) -> Path:
    """Dequantise a GGUF file to a safetensors folder in the cache, the first time only."""
    folder = cache_folder() / f"{bundled.name}-{bundled.sha256[:16]}"
    if (folder / "model.safetensors").is_file():
        return folder
    transformers = transformers_library()
    try:
        import accelerate  # noqa: F401
        import gguf  # noqa: F401
    except ImportError:
        raise MissingExtra(
            f"Reading {bundled.name!r} needs gguf and accelerate: "
            "run `pip install 'attnlimit[models]'`."
        ) from None
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    transformers.utils.logging.enable_progress_bar()
    options = {"gguf_file": path.name, "local_files_only": True, "trust_remote_code": False}
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, dtype=torch.float32, **options
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, **options)
        for name in ("quantization_config", "_pre_quantization_dtype"):
            if hasattr(model.config, name):
                delattr(model.config, name)
        # The same model without the quantiser it was read by, which refuses to save it.
        plain = transformers.AutoModelForCausalLM.from_config(model.config, dtype=torch.float32)
        plain.load_state_dict(model.state_dict())
        plain.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    except OSError as error:
        raise AttnlimitError(
            f"Cannot write the converted weights to {folder}: {error}; "
            "set ATTNLIMIT_CACHE to a folder that can be written."
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _load_folder(folder: Path, pickled: str | None, where: Placement) -> LoadedModel:
    transformers_library()
    files.check_folder(folder)
    weights, notes = sorted(folder.glob("*.safetensors")), []
    if pickled is not None:
        weights = files.pickled_weights(folder, pickled)
        notes = [f"pickled weights {pickled}, allowed by name, read as tensors only"]
    if not weights:
        found = sorted(f.name for f in folder.iterdir() if f.suffix in files.PICKLED_SUFFIXES)
        instead = (
            f"only pickled ones ({', '.join(found)}), which are refused unless one is named: "
            f"pickled={found[0]!r} in Python, --pickled-weights {found[0]} on the command line"
            if found
            else "save the model with save_pretrained"
        )
        raise BadInput(f"{folder} has no .safetensors weights; {instead}.")
    named = weights if pickled else None
    model, tokenizer, problem = read_model(folder, str(folder), where, pickled=named)
    hashes = "".join(file_hash(file) for file in weights)
    known, source = hashes if len(weights) == 1 else digest(hashes.encode()), f"folder {folder}"
    return LoadedModel(folder.name, model, tokenizer, known, source, notes=(*notes, *problem))


def _load_hub(name: str, where: Placement) -> LoadedModel:
    transformers = transformers_library()
    online = _hub_reachable()
    try:
        transformers.AutoConfig.from_pretrained(
            name, trust_remote_code=False, local_files_only=not online
        )
    except (OSError, ValueError) as error:
        reason = reason_of(error)
        if not online:
            reason = "the hub cannot be reached from here and it is not in the local cache"
        raise BadInput(
            f"There is no model {name!r} here: it is neither a bundled name "
            f"({', '.join(BUNDLED)}) nor a folder, and as a hub id it failed: {reason}."
        ) from None
    # Refuse a model whose configuration or index would have a pickle read.
    options = {"local_files_only": not online, "_raise_exceptions_for_missing_entries": False}
    for file in ("config.json", files.INDEX):
        path = transformers.utils.cached_file(name, file, **options)
        if path is not None and file == files.INDEX:
            files.check_index(Path(path), (".safetensors",))
        elif path is not None:
            files.check_config(files.read_json(Path(path)), name)
    model, tokenizer, problem = read_model(name, name, where, local=not online)
    weights = hashlib.sha256()
    for key, value in sorted(model.state_dict().items()):
        weights.update(key.encode())
        weights.update(value.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return LoadedModel(name, model, tokenizer, weights.hexdigest(), f"hub id {name}", notes=problem)


def _hub_reachable() -> bool:
    """Whether the hub's name resolves; its own client retries for half a minute before it says."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
    except OSError:
        return False
    return True
