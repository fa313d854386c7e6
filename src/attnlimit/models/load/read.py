"""How does transformers read a model's files? Safetensors and JSON only, and no code of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from attnlimit.errors import AttnlimitError, BadInput, MissingExtra
from attnlimit.models.load import files
from attnlimit.models.load.device import Placement

TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model")


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
        shared = {"config": config, "output_loading_info": True, **where.options()}
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
    missing = sorted(key for key in info["missing_keys"] if "pooler" not in key)
    if missing:  # the library fills them with noise
        raise BadInput(
            f"The weights of {name} are incomplete: {len(missing)} are missing, such as "
            f"{missing[0]}."
        )
    model = where.put(model.eval().requires_grad_(False))
    for parameter, value in model.named_parameters():
        if not value.is_meta and not torch.isfinite(value).all():
            raise BadInput(
                f"The weights of {name} contain NaN or infinite numbers, in {parameter}; "
                "the file is damaged or training diverged."
            )
    notes = _precision(model, where)
    if isinstance(source, Path) and not any((source / file).is_file() for file in TOKENIZER_FILES):
        return model, None, notes  # transformers would make up an empty one that reads no word
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
    except Exception as error:  # an image model, or a damaged file: inputs other than text work
        return model, None, (*notes, f"no tokenizer: {reason_of(error)}")
    return model, tokenizer, notes


def _precision(model: Any, where: Placement) -> tuple[str, ...]:
    """Say so where a model runs in less than single precision because its weights are stored so."""
    if where.dtype is not None or model.dtype.itemsize >= 4:
        return ()
    name = str(model.dtype).removeprefix("torch.")
    return (f"runs in {name}, as its weights are stored; --dtype float32 rounds less",)


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
