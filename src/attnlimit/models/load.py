"""Where does a model come from? A bundled name, a local folder, or a hub id when online."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch

from attnlimit.errors import AttnlimitError, BadInput, MissingExtra
from attnlimit.models.bundled import BUNDLED, Bundled

TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model")


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A transformer ready to be captured, with where it came from."""

    name: str
    model: Any  # transformers.PreTrainedModel
    tokenizer: Any | None
    weights: str  # SHA-256 of the weights
    source: str
    licence: str = "unknown"
    notes: tuple[str, ...] = field(default=())

    @property
    def positions(self) -> int | None:
        """Longest sequence the model takes, special tokens included; None if unlimited."""
        return max_positions(self.model)

    @property
    def causal(self) -> bool:
        """Whether the model predicts the next token."""
        return "CausalLM" in type(self.model).__name__ or "LMHead" in type(self.model).__name__

    def __repr__(self) -> str:
        config = self.model.config
        return (
            f"LoadedModel({self.name!r}, {type(self.model).__name__}, "
            f"layers={config.num_hidden_layers}, heads={config.num_attention_heads}, "
            f"positions={self.positions}, weights={self.weights[:12]})"
        )


def load(name: str | os.PathLike[str]) -> LoadedModel:
    """Load a model and its tokenizer in float32, ready for `capture`.

    Parameters
    ----------
    name : str or path
        "minilm" or "smollm2" (weights inside installed packages, verified by hash), a local folder
        that `save_pretrained` wrote, or a Hugging Face hub id when online. Weights are read from
        safetensors only, and code that comes with a model is never run.
    """
    text = os.fspath(name)
    if not text.strip():
        raise BadInput("The model's name is empty; give minilm, smollm2, a folder or a hub id.")
    if text in BUNDLED:
        return _load_bundled(BUNDLED[text])
    folder = Path(text).expanduser()
    if folder.is_dir():
        return _load_folder(folder)
    if folder.exists():
        raise BadInput(f"{text} is a file; give the folder that save_pretrained wrote.")
    return _load_hub(text)


def transformers_library() -> Any:
    """Import transformers, quietly, or say which extra to install."""
    try:
        import transformers
    except ImportError:
        raise MissingExtra(
            "Real models need transformers: run `pip install 'attnlimit[models]'`."
        ) from None
    transformers.logging.set_verbosity_error()
    return transformers


def cache_folder() -> Path:
    """Where converted weights are kept: $ATTNLIMIT_CACHE, or the user's cache folder."""
    chosen = os.environ.get("ATTNLIMIT_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "attnlimit"


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def max_positions(model: Any) -> int | None:
    """Longest sequence a model's positions allow; None for relative positions."""
    config = model.config
    limit = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    if config.model_type in ("t5", "mt5", "umt5") or limit is None:
        return None
    # RoBERTa and its kin start counting positions after the padding index.
    offset = getattr(getattr(model.base_model, "embeddings", None), "padding_idx", None)
    return int(limit) - (offset + 1 if offset is not None else 0)


def check_weights(model: Any, name: str) -> None:
    """Raise if a parameter holds NaN or infinities: every number computed from it would."""
    for parameter, value in model.named_parameters():
        if not torch.isfinite(value).all():
            raise BadInput(
                f"The weights of {name} contain NaN or infinite numbers, in {parameter}; "
                "the file is damaged or training diverged."
            )


def _load_bundled(bundled: Bundled) -> LoadedModel:
    transformers_library()
    path = bundled.require()
    found = file_hash(path)
    if found != bundled.sha256:
        raise AttnlimitError(
            f"The weights of {bundled.name!r} in {path} have SHA-256 {found[:12]}..., not "
            f"{bundled.sha256[:12]}...: reinstall {bundled.package}."
        )
    folder = path.parent if path.suffix == ".safetensors" else _converted(bundled, path)
    model, tokenizer = _read(folder, bundled.name)
    return LoadedModel(
        name=bundled.name,
        model=model,
        tokenizer=tokenizer,
        weights=found,
        source=f"package {bundled.package}",
        licence=bundled.licence,
        notes=(bundled.note,) if bundled.note else (),
    )


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
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32, local_files_only=True
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            path.parent, gguf_file=path.name, local_files_only=True
        )
        _plain_copy(transformers, model).save_pretrained(partial)
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


def _plain_copy(transformers: Any, model: Any) -> Any:
    """Return the same model without the quantiser it was read by, which refuses to save it."""
    config = model.config
    for name in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(config, name):
            delattr(config, name)
    copy = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    copy.load_state_dict(model.state_dict())
    return copy


def _load_folder(folder: Path) -> LoadedModel:
    transformers_library()
    if not (folder / "config.json").is_file():
        raise BadInput(f"{folder} holds no model: it has no config.json.")
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise BadInput(
            f"{folder} has no .safetensors weights; save the model with save_pretrained "
            "(pickled weights are never loaded)."
        )
    model, tokenizer = _read(folder, str(folder))
    hashes = "".join(file_hash(file) for file in files)
    weights = hashes if len(files) == 1 else hashlib.sha256(hashes.encode()).hexdigest()
    return LoadedModel(folder.name, model, tokenizer, weights, f"folder {folder}")


def _load_hub(name: str) -> LoadedModel:
    transformers = transformers_library()
    online = _hub_reachable()
    try:
        transformers.AutoConfig.from_pretrained(
            name, trust_remote_code=False, local_files_only=not online
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        if not online:
            reason = "the hub cannot be reached from here and it is not in the local cache"
        raise BadInput(
            f"There is no model {name!r} here: it is neither a bundled name "
            f"({', '.join(BUNDLED)}) nor a folder, and as a hub id it failed: {reason}."
        ) from None
    model, tokenizer = _read(name, name, local=not online)
    digest = hashlib.sha256()
    for key, value in sorted(model.state_dict().items()):
        digest.update(key.encode())
        digest.update(value.contiguous().numpy().tobytes())
    return LoadedModel(name, model, tokenizer, digest.hexdigest(), f"hub id {name}")


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


def _read(source: Path | str, name: str, local: bool = True) -> tuple[Any, Any | None]:
    transformers = transformers_library()
    transformers.utils.logging.disable_progress_bar()
    options = {"local_files_only": local, "trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(source, **options)
        model = _class_for(transformers, config).from_pretrained(
            source, dtype=torch.float32, use_safetensors=True, **options
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise BadInput(f"The model {name} cannot be loaded: {reason}.") from None
    model.eval().requires_grad_(False)
    check_weights(model, name)
    if isinstance(source, Path) and not any((source / file).is_file() for file in TOKENIZER_FILES):
        return model, None  # transformers would make up an empty one that reads no word
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
    except (OSError, ValueError, KeyError, TypeError):
        tokenizer = None  # an image model: inputs other than text still work
    return model, tokenizer


def _class_for(transformers: Any, config: Any) -> Any:
    architecture = next(iter(getattr(config, "architectures", None) or [""]))
    if "CausalLM" in architecture or "LMHead" in architecture:
        return transformers.AutoModelForCausalLM
    if getattr(config, "is_encoder_decoder", False):
        return transformers.AutoModelForTextEncoding
    return transformers.AutoModel
