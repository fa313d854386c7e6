"""Exports of bits and thresholds: cache types of llama.cpp and transformers, and ModelOpt.

A plan has bits for each layer and these tools one type for all: the nearest to the mean is taken.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.errors import BadInput
from attnlimit.planning.export_files import (
    Export,
    ExportOptions,
    HeadShares,
    Maker,
    as_json,
)
from attnlimit.planning.plan import Plan

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
        to="transformers",
        model=heads.plan.model,
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
        to="modelopt",
        model=heads.plan.model,
        files={MODELOPT: as_json(content)},
        use="copy sparse_attention_config into the config.json of the checkpoint",
        lost=(
            "ModelOpt skips tiles below the threshold and samples none of them, so the loss is "
            "not the plan's: one threshold for all heads; bits and evictions are lost."
        ),
        numbers={"threshold": 1 / max(sizes)},
        table=pd.DataFrame({"field": ["a", "b"], "value": [phase["a"], 0.0]}),
    )


CACHE_FORMATS: dict[str, Maker] = {
    "llama.cpp": _make_llama,
    "transformers": _make_quantized,
    "modelopt": _make_modelopt,
}
