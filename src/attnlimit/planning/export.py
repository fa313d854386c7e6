"""Plans in the formats of other tools: what is written, and how it is checked.

`FORMATS` holds one `ExportFormat` for each tool, with a function that makes the files from a
`HeadShares` and one that reads them as the tool would. An export is a folder with the tool's own
files and `export.json`, which says what they are made from, how to use them, and what is lost.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.files import read_bytes
from attnlimit.planning.export_cache import CACHE_FORMATS
from attnlimit.planning.export_files import (
    ABOUT,
    Export,
    ExportFormat,
    ExportOptions,
    HeadShares,
    as_json,
    by_layer,
    is_count,
    must,
    read_object,
)
from attnlimit.planning.plan import Plan

LARGEST = 1 << 27


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
        table=by_layer(shares, "kept"),
    )


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
        files={DUO_HEADS: content.getvalue().encode(), DUO_CONFIG: as_json(config)},
        use=(
            f"load_attn_pattern(folder), then sparsify with sparsity={sparsity:.4g}, which keeps "
            "as much of the cache as the plan"
        ),
        lost=(
            "DuoAttention has two kinds of heads, full and streaming: sizes between them, and "
            "samples of the far keys, are lost."
        ),
        numbers={**config, "sparsity": sparsity},
        table=by_layer(shares, "mean"),
    )


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
        files={SCORES: as_json(scores)},
        use=f"read {SCORES}: scores of each query head, by layer and head",
        lost="Scores put heads in an order: how many keys each keeps, and how, are lost.",
        numbers={},
        table=by_layer(kept, "mean"),
    )


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
        files={LAYERS: as_json(content)},
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
    levels = [s.threshold for s in chosen if s is not None and s.levels == 1 and not s.needs_keys]
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
        files={HUB: as_json(config)},
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
    config = read_object(path)
    for name in ("base_rate_sampling", "epsilon", "delta"):
        value = config.get(name)
        must(type(value) is float and 0 < value < 1, path, f"an object with {name} in (0, 1)")
    for name in ("init_offset", "local_offset"):
        must(is_count(config.get(name)), path, f"an object with {name} zero or more")
    must(len(config) == 5, path, "an object of five fields")
    return config


FORMATS = {
    "kvpress": ExportFormat(_make_kvpress, _check_kvpress),
    "duo": ExportFormat(_make_duo, _check_duo),
    "scores": ExportFormat(_make_scores, _check_scores),
    "layers": ExportFormat(_make_layers, _check_layers),
    "hub": ExportFormat(_make_hub, _check_hub),
    **CACHE_FORMATS,
}
