"""Plans in the formats of other tools: what is written, and how it is checked.

`FORMATS` holds one `ExportFormat` for each tool, with a function that makes the files from a
`HeadShares` and one that reads them as the tool would. An export is a folder with the tool's own
files and `export.json`, which says what they are made from, how to use them, and what is lost.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.files import read_bytes, read_json, write_atomically
from attnlimit.planning.plan import Plan
from attnlimit.result import Result
from attnlimit.samplers import Threshold, TwoLevel

ABOUT = "export.json"
SCHEMA = "attnlimit.export/1"
LARGEST = 1 << 27


@dataclass(frozen=True)
class ExportOptions:
    """First and recent tokens that the tool always keeps, and the size of its pages."""

    sinks: int = 4
    recent: int = 64
    page_size: int = 16

    def __post_init__(self) -> None:
        checks.count(self.sinks, "sinks", smallest=0)
        checks.count(self.recent, "recent", smallest=0)
        checks.count(self.page_size, "page_size")


@dataclass(frozen=True, eq=False)
class HeadShares:
    """Shares of keys that the heads of a plan keep, and its key-value heads.

    Query heads that share keys keep the union of what each keeps, which a complete plan has
    counted. Otherwise the union is the expected one if heads choose independently,

        1 - (1 - a) prod_h (1 - s_h),

    with s_h the shares of heads whose keys may be any, and a the largest share of those that keep
    the first and the most recent keys: of these, each holds the smaller.
    """

    plan: Plan

    @property
    def context(self) -> int:
        """Tokens of the longest text of the plan."""
        return max(self.plan.tokens)

    @property
    def kept(self) -> Array:
        """Share of the keys that a query sees, (L, H)."""
        kept = np.clip(self.plan.keys / self.plan.mean_visible, 0.0, 1.0)
        kept[[[sampler is None for sampler in row] for row in self.plan.heads]] = 1.0
        return np.asarray(kept)

    @property
    def nested(self) -> NDArray[np.bool_]:
        """Heads (L, H) that keep the first keys and the most recent ones."""
        return np.array([[s is not None and s.forgets for s in row] for row in self.plan.heads])

    def key_value_shares(self) -> Array:
        """Share of the cache that each key-value head keeps, (L, G)."""
        if self.plan.target.measure != "kl":
            raise BadInput(
                "The plan's model reads all its tokens at once and has no key-value cache to make "
                "smaller; scores and hub can be exported."
            )
        if self.plan.kv_keys is not None:
            return np.asarray(np.clip(self.plan.kv_keys / self.plan.mean_visible, 0.0, 1.0))
        apart = (len(self.kept), self.plan.architecture["kv_heads"], -1)
        kept, nested = self.kept.reshape(apart), self.nested.reshape(apart)
        together = np.where(nested, kept, 0.0).max(-1)
        missed = np.where(nested, 1.0, 1.0 - kept).prod(-1)
        return np.asarray(1.0 - (1.0 - together) * missed)

    def dropping(self) -> str:
        """What is lost where keys are dropped for good, in one sentence."""
        if self.nested.all():
            return "Which keys stay is the other tool's choice, not the plan's."
        return (
            "The plan chooses keys anew for every query; a cache that drops keys keeps as many, "
            "chosen once and by the other tool, so the plan's prediction does not hold for it."
        )


@dataclass(frozen=True, eq=False)
class Export(Result):
    """Files for another tool, not yet written."""

    to: str
    model: str
    files: dict[str, bytes]
    use: str  # how the other tool takes them
    lost: str  # one sentence
    numbers: dict[str, Any]  # that the other tool is to be given beside the files
    table: pd.DataFrame  # what is exported, layer by layer

    def to_frame(self) -> pd.DataFrame:
        """One row for each layer, or for each setting."""
        return self.table

    def headline(self) -> str:
        """Use, and what is lost."""
        return f"{self.to}: {self.use}\nlost: {self.lost}"

    def about(self) -> dict[str, Any]:
        """Return the content of `export.json`."""
        return {
            "schema": SCHEMA,
            "to": self.to,
            "model": self.model,
            "files": sorted(self.files),
            **self.numbers,
            "use": self.use,
            "lost": self.lost,
        }

    def write(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the files; a folder that is not empty is refused, unless with `force`."""
        target = Path(folder)
        if target.exists() and not target.is_dir():
            raise BadInput(f"{target} is a file; give a folder.")
        if target.is_dir() and any(target.iterdir()) and not force:
            raise BadInput(f"{target} is not empty; give another, or --force to write there.")
        for name, content in self.files.items():
            write_atomically(target / name, content)
        write_atomically(target / ABOUT, _json(self.about()))
        return target


class ExportFormat(NamedTuple):
    """A way to write a plan for another tool, and to read it as that tool would."""

    make: Callable[[HeadShares, ExportOptions], Export]
    check: Callable[[Path], Any]  # what the tool would read; BadInput if it could not


def export_plan(
    plan: Plan | str | Path, to: str, *, sinks: int = 4, recent: int = 64, page_size: int = 16
) -> Export:
    """Return what another tool reads of a plan; `write` puts it in a folder.

    Parameters
    ----------
    plan : Plan, or the path of its file
    to : "kvpress", "duo", "scores", "layers", "hub", "llama.cpp", "transformers" or "modelopt"
    sinks, recent : int
        First and most recent tokens that are always kept, and counted.
    page_size : int
        Tokens in a page of a paged cache.
    """
    form = FORMATS[checks.one_of(to, tuple(FORMATS), "The format")]
    read = plan if isinstance(plan, Plan) else Plan.read(plan)
    return form.make(HeadShares(read), ExportOptions(sinks, recent, page_size))


def check_export(folder: str | Path, to: str) -> Any:
    """Read an export as its tool would; a BadInput says what that tool could not read."""
    return FORMATS[checks.one_of(to, tuple(FORMATS), "The format")].check(Path(folder))


# kvpress: budget curves of LUKVPress.
CURVES = "budget_curves.npy"
RATIOS = np.arange(1, 100) / 100


def budget_curves(shares: Array) -> tuple[Array, int]:
    """Prune ratios (99, L, G) through the shares (L, G) that are kept, and the plan's per cent.

    Entry i is for a global ratio of (i+1) %. The plan is one of them; the others lie on straight
    lines from all keys to the plan, and from the plan to none. Every curve rises with the global
    ratio, which is its mean over heads but for the plan's own, rounded, entry.
    """
    pruned = 1.0 - shares
    ratio = float(pruned.mean())
    own = round(100 * ratio)
    if not 1 <= own <= 99:
        raise BadInput(
            f"The plan keeps {1 - ratio:.1%} of the cache, and kvpress's budget curves go from 1 % "
            "to 99 %; make a plan with another target."
        )
    global_ratio = RATIOS[:, None, None]
    below = pruned * global_ratio / ratio
    above = 1.0 - shares * (1 - global_ratio) / (1 - ratio)
    curves = np.where(global_ratio <= ratio, below, above)
    curves[own - 1] = pruned
    return curves, own


def _make_kvpress(heads: HeadShares, options: ExportOptions) -> Export:
    planned = heads.key_value_shares()
    shares = np.maximum(planned, min(1.0, (options.sinks + 1) / heads.context))
    curves, own = budget_curves(shares)
    smallest = int(shares.min() * heads.context)
    window = max(0, min(options.recent, smallest - options.sinks))
    content = io.BytesIO()
    np.save(content, curves, allow_pickle=False)
    ratio, raised = own / 100, int((shares > planned).sum())
    lost = heads.dropping()
    if raised:
        lost = f"{lost[:-1]}; heads that keep more than planned, for their sinks: {raised}."
    return Export(
        to="kvpress",
        model=heads.plan.model,
        files={CURVES: content.getvalue()},
        use=(
            f"press = LUKVPress(compression_ratio={ratio:g}, sink={options.sinks}, "
            f"window={window}); press._budget_curves = numpy.load({CURVES!r}), before its first use"
        ),
        lost=lost,
        numbers={"compression_ratio": ratio, "sink": options.sinks, "window": window},
        table=_by_layer(shares, "kept"),
    )


def _check_kvpress(folder: Path) -> Array:
    path = folder / CURVES
    try:
        curves = np.load(io.BytesIO(read_bytes(path, 1 << 30)), allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise BadInput(f"{path} cannot be read: {error}.") from None
    shaped = isinstance(curves, np.ndarray) and curves.ndim == 3 and curves.shape[0] == 99
    _must(shaped and curves.dtype.kind == "f", path, "numbers (99, layers, key-value heads)")
    _must(bool(((curves >= 0) & (curves <= 1)).all()), path, "prune ratios between 0 and 1")
    _must(bool((np.diff(curves, axis=0) >= -1e-9).all()), path, "ratios that rise with the first")
    ratio = _read_object(folder / ABOUT).get("compression_ratio")
    _must(ratio in RATIOS.tolist(), folder / ABOUT, "a compression_ratio of 0.01 to 0.99")
    return np.asarray(curves, dtype=float)


# DuoAttention: a number between 0 and 1 for each head, how much it needs far tokens.
DUO_HEADS, DUO_CONFIG = "full_attention_heads.tsv", "config.json"


def _make_duo(heads: HeadShares, options: ExportOptions) -> Export:
    shares, streaming = heads.key_value_shares(), options.sinks + options.recent
    if streaming >= heads.context:
        raise BadInput(
            f"Streaming heads of {options.sinks} + {options.recent} tokens keep all of the plan's "
            f"{heads.context}; give fewer --sinks and --recent, or plan on longer texts."
        )
    kept = (1 - shares.mean()) / (1 - streaming / heads.context)
    sparsity = float(np.clip(kept, 0.0, 1.0))
    content = io.StringIO()
    np.savetxt(content, shares, delimiter="\t")
    config = {"sink_size": options.sinks, "recent_size": options.recent}
    return Export(
        to="duo",
        model=heads.plan.model,
        files={DUO_HEADS: content.getvalue().encode(), DUO_CONFIG: _json(config)},
        use=(
            f"load_attn_pattern(folder), then sparsify with sparsity={sparsity:.4g}, which keeps "
            "as much of the cache as the plan"
        ),
        lost=(
            "DuoAttention has two kinds of heads, full and streaming: sizes between them, and "
            "samples of the far keys, are lost."
        ),
        numbers={**config, "sparsity": sparsity},
        table=_by_layer(shares, "mean"),
    )


def _check_duo(folder: Path) -> tuple[Array, int, int]:
    path = folder / DUO_HEADS
    try:
        rows = read_bytes(path, LARGEST).decode().splitlines()
        heads = np.loadtxt(rows, dtype=float, delimiter="\t", ndmin=2) if rows else np.empty(0)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}.") from None
    fine = heads.size > 0 and bool(((heads >= 0) & (heads <= 1)).all())
    _must(fine, path, "rows of layers with a number between 0 and 1 for each key-value head")
    config = _read_object(folder / DUO_CONFIG)
    sizes = [config.get(name) for name in ("sink_size", "recent_size")]
    fine = all(map(_is_count, sizes))
    _must(fine, folder / DUO_CONFIG, "an object with sink_size and recent_size")
    return heads, int(config["sink_size"]), int(config["recent_size"])


# Retrieval-head scores: tools give heads of high score more of the cache.
SCORES = "head_scores.json"


def _make_scores(heads: HeadShares, options: ExportOptions) -> Export:
    kept = heads.kept
    scores = {
        f"{layer}-{head}": [float(share)]
        for layer, row in enumerate(kept)
        for head, share in enumerate(row)
    }
    return Export(
        to="scores",
        model=heads.plan.model,
        files={SCORES: _json(scores)},
        use=f"read {SCORES}: scores of each query head, by layer and head",
        lost="Scores put heads in an order: how many keys each keeps, and how, are lost.",
        numbers={},
        table=_by_layer(kept, "mean"),
    )


def _check_scores(folder: Path) -> dict[str, list[float]]:
    path = folder / SCORES
    scores = _read_object(path)
    named = all(re.fullmatch(r"\d{1,6}-\d{1,6}", name) for name in scores)
    _must(bool(scores) and named, path, 'an object of names such as "0-3", a layer and a head')
    places = {tuple(map(int, name.split("-"))) for name in scores}
    ends = [max(place[axis] for place in places) + 1 for axis in (0, 1)]
    whole = len(places) == len(scores) == ends[0] * ends[1]
    _must(whole, path, "a score for all layers and heads")
    for values in scores.values():
        numbers = isinstance(values, list) and all(type(one) in (int, float) for one in values)
        fine = numbers and bool(values) and all(0 <= one <= 1 for one in values)
        _must(fine, path, "lists of scores between 0 and 1")
    return scores


# Budgets of each layer of a paged cache, in whole pages.
LAYERS = "layer_budgets.json"
COUNTS = ("context", "page_size", "sinks", "recent", "total_tokens", "total_pages", "dense_pages")


def _make_layers(heads: HeadShares, options: ExportOptions) -> Export:
    """Slots of a layer for its most demanding key-value head; sinks and recent among them."""
    context, page = heads.context, options.page_size
    protected = min(context, options.sinks + options.recent)
    shares = heads.key_value_shares()
    planned = np.ceil(np.round(shares.max(1) * context, 6)).astype(int)
    pages = -(-np.maximum(planned, protected) // page)
    columns = {"layer": np.arange(len(pages)), "planned": planned, "tokens": pages * page}
    table = pd.DataFrame({**columns, "pages": pages})
    total, whole = int(pages.sum()), -(-context // page) * len(pages)
    content = {
        "context": context,
        "page_size": page,
        "sinks": options.sinks,
        "recent": options.recent,
        "layers": table.astype(object).to_dict(orient="records"),
        "total_tokens": total * page,
        "total_pages": total,
        "dense_pages": whole,
    }
    kept, dropping = total / whole, heads.dropping()
    return Export(
        to="layers",
        model=heads.plan.model,
        files={LAYERS: _json(content)},
        use=f"give each layer its tokens of {LAYERS}; all of them are {kept:.1%} of the pages",
        lost=(
            "Heads of a layer share its pages, so each keeps as many keys as the most demanding "
            f"one; {dropping[0].lower()}{dropping[1:]}"
        ),
        numbers={"kept": kept},
        table=table,
    )


def _check_layers(folder: Path) -> dict[str, Any]:
    path = folder / LAYERS
    content = _read_object(path)
    fine = all(_is_count(content.get(name)) for name in COUNTS) and content["page_size"] > 0
    _must(fine, path, f"an object with whole numbers {', '.join(COUNTS)}")
    layers = content.get("layers") or []
    _must(isinstance(layers, list) and len(layers) > 0, path, "an object with a list of layers")
    page = content["page_size"]
    for place, layer in enumerate(layers):
        fine = isinstance(layer, dict) and layer.get("layer") == place
        fine = fine and all(_is_count(layer.get(name)) for name in ("planned", "tokens", "pages"))
        _must(fine, path, "layers in their order with planned, tokens and pages")
        _must(layer["tokens"] == layer["pages"] * page >= layer["planned"], path, "whole pages")
    sums = [sum(layer[name] for layer in layers) for name in ("tokens", "pages")]
    same = sums == [content["total_tokens"], content["total_pages"]]
    _must(same, path, "totals that are the sums of the layers")
    return content


# sparse-attention-hub: its sampler bounds the relative error of the softmax's denominator by
# epsilon with probability 1 - delta, by a normal law: a relative variance of (epsilon / z)^2. A
# threshold c has a relative variance of at most 1/c, so its epsilon is z / sqrt(c).
HUB = "adaptive_sampling.json"
DELTA = 0.05


def _make_hub(heads: HeadShares, options: ExportOptions) -> Export:
    chosen = [sampler for row in heads.plan.heads for sampler in row]
    dense = sum(sampler is None for sampler in chosen)
    if dense:
        raise BadInput(
            f"{dense} heads of the plan read all keys, and sparse-attention-hub has one epsilon "
            "for all heads; plan with --per model, or a larger error."
        )
    levels = [s.c for s in chosen if isinstance(s, Threshold) and s.proxy is None]
    if len(levels) < len(chosen):
        raise BadInput(
            "Only thresholds without a proxy have an epsilon in sparse-attention-hub; plan with "
            "--scheme threshold."
        )
    epsilon = float(norm.isf(DELTA) / np.sqrt(max(levels)))
    if not 0 < epsilon < 1:
        raise BadInput(
            f"sparse-attention-hub takes an epsilon between 0 and 1, and the plan's is "
            f"{epsilon:.3g}; plan for a smaller error."
        )
    between = heads.context - options.sinks - options.recent
    if between < 2:
        raise BadInput(
            f"Nothing is left to sample between {options.sinks} sinks and {options.recent} recent "
            f"tokens of the plan's {heads.context}; give fewer --sinks and --recent."
        )
    # A first sample no larger than what the least demanding head reads; two show a spread.
    first = float(np.clip(heads.kept.min(), 2 / between, 0.5))
    config = {
        "base_rate_sampling": first,
        "epsilon": epsilon,
        "delta": DELTA,
        "init_offset": options.sinks,
        "local_offset": options.recent,
    }
    alike = "" if len(set(levels)) == 1 else ", that of the most demanding head"
    return Export(
        to="hub",
        model=heads.plan.model,
        files={HUB: _json(config)},
        use=(
            f"AdaptiveSamplingMaskerConfig(**fields of {HUB}), after maskers that keep the "
            f"{options.sinks} first and {options.recent} recent tokens"
        ),
        lost=(
            f"One epsilon for a model{alike}: it samples all keys alike, so it reads more than the "
            "plan for the same error, and its bound uses the denominator alone, not the values."
        ),
        numbers={},
        table=pd.DataFrame({"field": [*config], "value": [*config.values()]}),
    )


def _check_hub(folder: Path) -> dict[str, Any]:
    path = folder / HUB
    config = _read_object(path)
    for name in ("base_rate_sampling", "epsilon", "delta"):
        value = config.get(name)
        _must(type(value) is float and 0 < value < 1, path, f"an object with {name} in (0, 1)")
    for name in ("init_offset", "local_offset"):
        _must(_is_count(config.get(name)), path, f"an object with {name} zero or more")
    _must(len(config) == 5, path, "an object of five fields")
    return config


# Precisions of caches: one type for all layers, the nearest to the mean bits of the plan.
CACHE_TYPES = {16: "f16", 8: "q8_0", 5: "q5_0", 4: "q4_0"}
LLAMA, QUANTIZED, MODELOPT = "cache_types.json", "cache_config.json", "config.json"


def _mean_bits(plan: Plan, part: int) -> float:
    """Mean bits of keys (0) or values (1); what is not rounded has 16."""
    forms = [None if one is None else one.formats[part] for one in plan.quantize or ()]
    if not any(forms):
        raise BadInput(
            "The plan rounds nothing, so it has no cache types; plan with --quantize 8/4 or "
            "--minimise bytes_stored."
        )
    return float(np.mean([16 if form is None else form.bits for form in forms]))


def _dropped(plan: Plan) -> str:
    """Knobs of a plan that a cache type does not have, in words."""
    layers = "" if len(set(plan.quantize or ())) < 2 else "the bits of single layers, "
    evicted = "" if plan.evict is None else ", the eviction"
    return f"{layers}the keys that are read{evicted} and the mean key taken out"


def _bits_by_layer(plan: Plan) -> pd.DataFrame:
    names = [
        ["f16" if one is None else one.formats[part].name for part in (0, 1)]
        for one in plan.quantize or ()
    ]
    keys, values = zip(*names, strict=True)
    return pd.DataFrame({"layer": range(len(names)), "keys": keys, "values": values})


def _make_llama(heads: HeadShares, options: ExportOptions) -> Export:
    bits = [_mean_bits(heads.plan, part) for part in (0, 1)]
    types = [CACHE_TYPES[min(CACHE_TYPES, key=lambda b: abs(b - mean))] for mean in bits]
    content = dict(zip(("cache_type_k", "cache_type_v"), types, strict=True))
    return Export(
        to="llama.cpp",
        model=heads.plan.model,
        files={LLAMA: _json(content)},
        use=f"--flash-attn on --cache-type-k {types[0]} --cache-type-v {types[1]}",
        lost=(
            f"llama.cpp has one type for all layers: {_dropped(heads.plan)} are lost; predict the "
            f"types with attnlimit evaluate --quantize {types[0]}/{types[1]}."
        ),
        numbers=content,
        table=_bits_by_layer(heads.plan),
    )


def _check_llama(folder: Path) -> dict[str, Any]:
    path = folder / LLAMA
    content = _read_object(path)
    known = set(CACHE_TYPES.values())
    fine = set(content) == {"cache_type_k", "cache_type_v"} and set(content.values()) <= known
    _must(fine, path, f"an object with cache_type_k and cache_type_v of {', '.join(known)}")
    return content


def _make_quantized(heads: HeadShares, options: ExportOptions) -> Export:
    mean = (_mean_bits(heads.plan, 0) + _mean_bits(heads.plan, 1)) / 2
    bits = min((8, 4, 2), key=lambda b: abs(b - mean))
    backend = "hqq" if bits == 8 else "quanto"
    config = {"backend": backend, "nbits": bits, "q_group_size": 64, "residual_length": 128}
    content = {"cache_implementation": "quantized", "cache_config": config}
    return Export(
        to="transformers",
        model=heads.plan.model,
        files={QUANTIZED: _json(content)},
        use=f"model.generate(..., **json.load(open({QUANTIZED!r}))), with {backend} installed",
        lost=(
            "transformers' quantised cache has one number of bits for keys and values of all "
            f"layers: {_dropped(heads.plan)} are lost."
        ),
        numbers={"nbits": bits},
        table=_bits_by_layer(heads.plan),
    )


def _check_quantized(folder: Path) -> dict[str, Any]:
    path = folder / QUANTIZED
    content = _read_object(path)
    config = content.get("cache_config")
    config = config if isinstance(config, dict) else {}
    fine = content.get("cache_implementation") == "quantized" and bool(config)
    _must(fine, path, "an object with cache_implementation and cache_config")
    fine = config.get("nbits") in (2, 4, 8) and config.get("backend") in ("quanto", "hqq")
    _must(fine, path, "a cache_config with a backend and 2, 4 or 8 nbits")
    return content


def _make_modelopt(heads: HeadShares, options: ExportOptions) -> Export:
    """A tile is skipped where exp(its best score - the best so far) is below a threshold.

    The threshold is a * exp(b * target_sparsity) / length. With 1/c, no key that the plan reads
    for sure is skipped: its weight is at least 1/c of all, so also of the best.
    """
    chosen = {s for row in heads.plan.heads for s in row}
    sizes = [s.c for s in chosen if isinstance(s, (Threshold, TwoLevel))]
    if len(sizes) < len(chosen):
        raise BadInput(
            "ModelOpt skips keys below a threshold, and the plan has heads without one; plan with "
            "--scheme threshold or index."
        )
    factor = {"formula": "a * exp(b * target_sparsity)"}
    phase = {"a": heads.context / max(sizes), "b": 0.0}
    sparsity = float(1 - heads.kept.mean())
    group = {
        "algorithm": "skip_softmax",
        "targets": ["*"],
        "threshold_scale_factor": {**factor, "decode": phase},
        "target_sparsity": {"decode": sparsity},
    }
    content = {"sparse_attention_config": {"config_groups": {"group_0": group}}}
    return Export(
        to="modelopt",
        model=heads.plan.model,
        files={MODELOPT: _json(content)},
        use="copy sparse_attention_config into the config.json of the checkpoint",
        lost=(
            "ModelOpt skips tiles below the threshold and samples none of them, so the loss is "
            "not the plan's: one threshold for all heads; bits and evictions are lost."
        ),
        numbers={"threshold": 1 / max(sizes)},
        table=pd.DataFrame({"field": ["a", "b"], "value": [phase["a"], 0.0]}),
    )


def _check_modelopt(folder: Path) -> dict[str, Any]:
    path = folder / MODELOPT
    content = _read_object(path).get("sparse_attention_config")
    content = content if isinstance(content, dict) else {}
    groups = content.get("config_groups")
    groups = groups if isinstance(groups, dict) else {}
    _must(bool(groups), path, "an object with config_groups")
    for group in groups.values():
        fine = isinstance(group, dict) and group.get("algorithm") == "skip_softmax"
        _must(fine, path, "groups of the algorithm skip_softmax")
        factor = group.get("threshold_scale_factor")
        phase = factor.get("decode") if isinstance(factor, dict) else None
        fine = isinstance(phase, dict) and all(
            type(phase.get(name)) in (int, float) for name in "ab"
        )
        _must(fine, path, "a threshold_scale_factor with a and b of decode")
    return dict(content)


FORMATS = {
    "kvpress": ExportFormat(_make_kvpress, _check_kvpress),
    "duo": ExportFormat(_make_duo, _check_duo),
    "scores": ExportFormat(_make_scores, _check_scores),
    "layers": ExportFormat(_make_layers, _check_layers),
    "hub": ExportFormat(_make_hub, _check_hub),
    "llama.cpp": ExportFormat(_make_llama, _check_llama),
    "transformers": ExportFormat(_make_quantized, _check_quantized),
    "modelopt": ExportFormat(_make_modelopt, _check_modelopt),
}


def _by_layer(shares: Array, mean: str) -> pd.DataFrame:
    columns = {mean: shares.mean(1), "least": shares.min(1), "most": shares.max(1)}
    return pd.DataFrame({"layer": np.arange(len(shares)), **columns})


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


def _read_object(path: Path) -> dict[str, Any]:
    content = read_json(path)
    _must(isinstance(content, dict), path, "an object")
    return dict(content)


def _must(fine: bool, path: Path, expected: str) -> None:
    """Raise unless a file has what its reader expects."""
    if not fine:
        raise BadInput(f"{path} cannot be read by the tool it is for: it must be {expected}.")


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0
