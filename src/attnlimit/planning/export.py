"""Plans in the formats of other tools.

`FORMATS` holds a function for each tool that makes its files from a `HeadShares`. An export is a
folder with the tool's own files and `export.json`, which says what they are made from, how to use
them, and what is lost.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.planning.export_cache import CACHE_FORMATS
from attnlimit.planning.export_files import (
    DROPPED,
    Export,
    ExportOptions,
    HeadShares,
    Maker,
    as_json,
    by_layer,
)
from attnlimit.planning.plan import Plan


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
    return make(HeadShares(read), ExportOptions(sinks, recent, page_size))


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
        to="layers",
        model=heads.plan.model,
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


FORMATS: dict[str, Maker] = {
    "kvpress": _make_kvpress,
    "duo": _make_duo,
    "scores": _make_scores,
    "layers": _make_layers,
    "hub": _make_hub,
    **CACHE_FORMATS,
}
