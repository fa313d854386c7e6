"""Plans in the formats of other tools.

`FORMATS` holds a function for each tool that makes its files from a `HeadShares`. An export is a
folder with the tool's own files and `export.json`, which says what they are made from, how to use
them, and what is lost.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from scipy.stats import norm

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.files import write_atomically
from attnlimit.planning.plan import Plan
from attnlimit.result import Result

ABOUT = "export.json"
SCHEMA = "attnlimit.export/1"
DROPPED = (
    "The plan chooses keys anew for every query; a cache that drops keys keeps as many, chosen "
    "once and by the other tool, so the plan's prediction does not hold for it."
)
"""What is lost where keys are dropped for good."""


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

    Query heads that share keys keep the union of what each keeps, which a plan has counted.
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

    def key_value_shares(self) -> Array:
        """Share of the cache that each key-value head keeps, (L, G)."""
        if self.plan.target.measure != "kl":
            raise BadInput(
                "The plan's model reads all its tokens at once and has no key-value cache to make "
                "smaller; scores and hub can be exported."
            )
        if self.plan.kv_keys is None:
            raise BadInput(
                "The plan has not counted the keys that heads of a group read together; make it "
                "again with attnlimit plan."
            )
        return np.asarray(np.clip(self.plan.kv_keys / self.plan.mean_visible, 0.0, 1.0))


@dataclass(frozen=True, eq=False)
class Export(Result):
    """Files for another tool, not yet written."""

    files: dict[str, bytes]
    use: str  # how the other tool takes them
    lost: str  # one sentence
    numbers: dict[str, Any]  # that the other tool is to be given beside the files
    table: pd.DataFrame  # what is exported, layer by layer
    to: str = ""  # name of the format, and of the plan's model
    model: str = ""

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
        write_atomically(target / ABOUT, as_json(self.about()))
        return target


Maker: TypeAlias = Callable[[HeadShares, ExportOptions], Export]
"""Makes the files of a tool."""


def by_layer(shares: Array, mean: str) -> pd.DataFrame:
    """Return a table of the shares of each layer's heads."""
    columns = {mean: shares.mean(1), "least": shares.min(1), "most": shares.max(1)}
    return pd.DataFrame({"layer": np.arange(len(shares)), **columns})


def as_json(content: Any) -> bytes:
    """Return the bytes of a JSON file."""
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


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
    make = FORMATS[checks.one_of(to, tuple(FORMATS), "The format")]
    read = plan if isinstance(plan, Plan) else Plan.read(plan)
    made = make(HeadShares(read), ExportOptions(sinks, recent, page_size))
    return replace(made, to=to, model=read.model)


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
    lost = DROPPED
    if raised:
        lost = f"{lost[:-1]}; heads that keep more than planned, for their sinks: {raised}."
    return Export(
        files={CURVES: content.getvalue()},
        use=(
            f"press = LUKVPress(compression_ratio={ratio:g}, sink={options.sinks}, "
            f"window={window}); press._budget_curves = numpy.load({CURVES!r}), before its first use"
        ),
        lost=lost,
        numbers={"compression_ratio": ratio, "sink": options.sinks, "window": window},
        table=by_layer(shares, "kept"),
    )


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
        files={SCORES: as_json(scores)},
        use=f"read {SCORES}: scores of each query head, by layer and head",
        lost="Scores put heads in an order: how many keys each keeps, and how, are lost.",
        numbers={},
        table=by_layer(kept, "mean"),
    )


# Budgets of each layer of a paged cache, in whole pages.
LAYERS = "layer_budgets.json"


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
    kept = total / whole
    return Export(
        files={LAYERS: as_json(content)},
        use=f"give each layer its tokens of {LAYERS}; all of them are {kept:.1%} of the pages",
        lost=(
            "Heads of a layer share its pages, so each keeps as many keys as the most demanding "
            f"one; {DROPPED[0].lower()}{DROPPED[1:]}"
        ),
        numbers={"kept": kept},
        table=table,
    )


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
    if between < 4:  # half of them are two at least
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


# Cache types of llama.cpp and transformers: a plan has bits for each layer and these tools one type
# for all, so that the nearest to the mean is taken.
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
        files={LLAMA: as_json(content)},
        use=f"--flash-attn on --cache-type-k {types[0]} --cache-type-v {types[1]}",
        lost=(
            f"llama.cpp has one type for all layers: {_dropped(heads.plan)} are lost; predict the "
            f"types with attnlimit evaluate --quantize {types[0]}/{types[1]}."
        ),
        numbers=content,
        table=_bits_by_layer(heads.plan),
    )


def _make_quantized(heads: HeadShares, options: ExportOptions) -> Export:
    mean = (_mean_bits(heads.plan, 0) + _mean_bits(heads.plan, 1)) / 2
    bits = min((8, 4, 2), key=lambda b: abs(b - mean))
    backend = "hqq" if bits == 8 else "quanto"
    config = {"backend": backend, "nbits": bits, "q_group_size": 64, "residual_length": 128}
    content = {"cache_implementation": "quantized", "cache_config": config}
    return Export(
        files={QUANTIZED: as_json(content)},
        use=f"model.generate(..., **json.load(open({QUANTIZED!r}))), with {backend} installed",
        lost=(
            "transformers' quantised cache has one number of bits for keys and values of all "
            f"layers: {_dropped(heads.plan)} are lost."
        ),
        numbers={"nbits": bits},
        table=_bits_by_layer(heads.plan),
    )


def _make_modelopt(heads: HeadShares, options: ExportOptions) -> Export:
    """A tile is skipped where exp(its best score - the best so far) is below a threshold.

    The threshold is a * exp(b * target_sparsity) / length. With 1/c, no key that the plan reads
    for sure is skipped: its weight is at least 1/c of all, so also of the best.
    """
    chosen = {s for row in heads.plan.heads for s in row}
    sizes = [s.threshold for s in chosen if s is not None and s.threshold is not None]
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
        files={MODELOPT: as_json(content)},
        use="copy sparse_attention_config into the config.json of the checkpoint",
        lost=(
            "ModelOpt skips tiles below the threshold and samples none of them, so the loss is "
            "not the plan's: one threshold for all heads; bits and evictions are lost."
        ),
        numbers={"threshold": 1 / max(sizes)},
        table=pd.DataFrame({"field": ["a", "b"], "value": [phase["a"], 0.0]}),
    )


FORMATS: dict[str, Maker] = {
    "kvpress": _make_kvpress,
    "duo": _make_duo,
    "scores": _make_scores,
    "layers": _make_layers,
    "hub": _make_hub,
    "llama.cpp": _make_llama,
    "transformers": _make_quantized,
    "modelopt": _make_modelopt,
}
