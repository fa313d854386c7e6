"""Exports as the tools that they are for would read them; BadInput where a tool could not."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np

from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.files import read_bytes, read_json
from attnlimit.planning.export import (
    ABOUT,
    CACHE_TYPES,
    CURVES,
    DUO_CONFIG,
    DUO_HEADS,
    HUB,
    LAYERS,
    LLAMA,
    MODELOPT,
    QUANTIZED,
    RATIOS,
    SCORES,
)

LARGEST = 1 << 27
COUNTS = ("context", "page_size", "sinks", "recent", "total_tokens", "total_pages", "dense_pages")


def check_export(folder: str | Path, to: str) -> Any:
    """Read an export as its tool would."""
    return READERS[to](Path(folder))


def _check_kvpress(folder: Path) -> Array:
    path = folder / CURVES
    try:
        curves = np.load(io.BytesIO(read_bytes(path, 1 << 30)), allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise BadInput(f"{path} cannot be read: {error}; give another file.") from None
    shaped = isinstance(curves, np.ndarray) and curves.ndim == 3 and curves.shape[0] == 99
    must(shaped and curves.dtype.kind == "f", path, "numbers (99, layers, key-value heads)")
    must(bool(((curves >= 0) & (curves <= 1)).all()), path, "prune ratios between 0 and 1")
    must(bool((np.diff(curves, axis=0) >= -1e-9).all()), path, "ratios that rise with the first")
    ratio = read_object(folder / ABOUT).get("compression_ratio")
    must(ratio in RATIOS.tolist(), folder / ABOUT, "a compression_ratio of 0.01 to 0.99")
    return np.asarray(curves, dtype=float)


def _check_duo(folder: Path) -> tuple[Array, int, int]:
    path = folder / DUO_HEADS
    try:
        rows = read_bytes(path, LARGEST).decode().splitlines()
        heads = np.loadtxt(rows, dtype=float, delimiter="\t", ndmin=2) if rows else np.empty(0)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}; give another file.") from None
    fine = heads.size > 0 and bool(((heads >= 0) & (heads <= 1)).all())
    must(fine, path, "rows of layers with a number between 0 and 1 for each key-value head")
    config = read_object(folder / DUO_CONFIG)
    sizes = [config.get(name) for name in ("sink_size", "recent_size")]
    fine = all(map(is_count, sizes))
    must(fine, folder / DUO_CONFIG, "an object with sink_size and recent_size")
    return heads, int(config["sink_size"]), int(config["recent_size"])


def _check_scores(folder: Path) -> dict[str, list[float]]:
    path = folder / SCORES
    scores = read_object(path)
    named = all(re.fullmatch(r"\d{1,6}-\d{1,6}", name) for name in scores)
    must(bool(scores) and named, path, 'an object of names such as "0-3", a layer and a head')
    places = {tuple(map(int, name.split("-"))) for name in scores}
    ends = [max(place[axis] for place in places) + 1 for axis in (0, 1)]
    whole = len(places) == len(scores) == ends[0] * ends[1]
    must(whole, path, "a score for all layers and heads")
    for values in scores.values():
        numbers = isinstance(values, list) and all(type(one) in (int, float) for one in values)
        fine = numbers and bool(values) and all(0 <= one <= 1 for one in values)
        must(fine, path, "lists of scores between 0 and 1")
    return scores


def _check_layers(folder: Path) -> dict[str, Any]:
    path = folder / LAYERS
    content = read_object(path)
    fine = all(is_count(content.get(name)) for name in COUNTS) and content["page_size"] > 0
    must(fine, path, f"an object with whole numbers {', '.join(COUNTS)}")
    layers = content.get("layers") or []
    must(isinstance(layers, list) and len(layers) > 0, path, "an object with a list of layers")
    page = content["page_size"]
    for place, layer in enumerate(layers):
        fine = isinstance(layer, dict) and layer.get("layer") == place
        fine = fine and all(is_count(layer.get(name)) for name in ("planned", "tokens", "pages"))
        must(fine, path, "layers in their order with planned, tokens and pages")
        must(layer["tokens"] == layer["pages"] * page >= layer["planned"], path, "whole pages")
    sums = [sum(layer[name] for layer in layers) for name in ("tokens", "pages")]
    same = sums == [content["total_tokens"], content["total_pages"]]
    must(same, path, "totals that are the sums of the layers")
    return content


def _check_hub(folder: Path) -> dict[str, Any]:
    path = folder / HUB
    config = read_object(path)
    for name in ("base_rate_sampling", "epsilon", "delta"):
        value = config.get(name)
        must(type(value) is float and 0 < value < 1, path, f"an object with {name} in (0, 1)")
    for name in ("init_offset", "local_offset"):
        must(is_count(config.get(name)), path, f"an object with {name} zero or more")
    must(len(config) == 5, path, "an object of five fields")
    return config


def _check_llama(folder: Path) -> dict[str, Any]:
    path = folder / LLAMA
    content = read_object(path)
    known = set(CACHE_TYPES.values())
    fine = set(content) == {"cache_type_k", "cache_type_v"} and set(content.values()) <= known
    must(fine, path, f"an object with cache_type_k and cache_type_v of {', '.join(known)}")
    return content


def _check_quantized(folder: Path) -> dict[str, Any]:
    path = folder / QUANTIZED
    content = read_object(path)
    config = content.get("cache_config")
    config = config if isinstance(config, dict) else {}
    fine = content.get("cache_implementation") == "quantized" and bool(config)
    must(fine, path, "an object with cache_implementation and cache_config")
    fine = config.get("nbits") in (2, 4, 8) and config.get("backend") in ("quanto", "hqq")
    must(fine, path, "a cache_config with a backend and 2, 4 or 8 nbits")
    return content


def _check_modelopt(folder: Path) -> dict[str, Any]:
    path = folder / MODELOPT
    content = read_object(path).get("sparse_attention_config")
    content = content if isinstance(content, dict) else {}
    groups = content.get("config_groups")
    groups = groups if isinstance(groups, dict) else {}
    must(bool(groups), path, "an object with config_groups")
    for group in groups.values():
        fine = isinstance(group, dict) and group.get("algorithm") == "skip_softmax"
        must(fine, path, "groups of the algorithm skip_softmax")
        factor = group.get("threshold_scale_factor")
        phase = factor.get("decode") if isinstance(factor, dict) else None
        fine = isinstance(phase, dict) and all(
            type(phase.get(name)) in (int, float) for name in "ab"
        )
        must(fine, path, "a threshold_scale_factor with a and b of decode")
    return dict(content)


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object."""
    content = read_json(path)
    must(isinstance(content, dict), path, "an object")
    return dict(content)


def must(fine: bool, path: Path, expected: str) -> None:
    """Raise unless a file has what its reader expects."""
    if not fine:
        raise BadInput(f"{path} cannot be read by the tool it is for: it must be {expected}.")


def is_count(value: Any) -> bool:
    """Whether a value is a whole number, zero or more."""
    return type(value) is int and value >= 0


READERS = {
    "kvpress": _check_kvpress,
    "duo": _check_duo,
    "scores": _check_scores,
    "layers": _check_layers,
    "hub": _check_hub,
    "llama.cpp": _check_llama,
    "transformers": _check_quantized,
    "modelopt": _check_modelopt,
}
