"""Which heads may be streaming heads of DuoAttention, that keep first and recent tokens alone?

A head's number, between 0 and 1, says how much it needs the rest of the context. Where a plan knows
how many first and recent tokens are enough, it is how far that goes beyond what a streaming head
keeps; otherwise the share of the cache that the plan keeps.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd

from attnlimit.budgets.exports.folder import (
    Choices,
    Export,
    Format,
    as_json,
    is_count,
    must,
    read_object,
)
from attnlimit.budgets.exports.needs import Needs
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.files import read_bytes
from attnlimit.samplers import SinksAndRecent

HEADS, CONFIG = "full_attention_heads.tsv", "config.json"
LARGEST = 1 << 27


def full_attention(needs: Needs, choices: Choices) -> tuple[Array, float]:
    """Numbers (L, G) of the key-value heads, and the share of them that may be streaming."""
    groups, streaming = needs.key_value_heads(), choices.sinks + choices.recent
    if streaming >= needs.context:
        raise BadInput(
            f"Streaming heads of {choices.sinks} + {choices.recent} tokens keep all of the plan's "
            f"{needs.context}; give fewer --sinks and --recent, or plan on longer texts."
        )
    if needs.local is None:
        heads = needs.shares()
        kept = (1 - heads.mean()) / (1 - streaming / needs.context)
        return heads, float(np.clip(kept, 0.0, 1.0))
    first = SinksAndRecent().sinks
    if choices.sinks < first:
        raise BadInput(
            f"The plan's first and recent tokens have {first} sinks; give --sinks {first} or more."
        )
    most = needs.local.reshape(len(needs.local), groups, -1).max(-1)
    enough = first + choices.recent  # of the tokens that the plan counts, a streaming head's
    heads = np.clip((most - enough) / (needs.context - enough), 0.0, 1.0)
    return heads, float((heads == 0).mean())


def make(needs: Needs, choices: Choices) -> Export:
    """DuoAttention's folder."""
    heads, sparsity = full_attention(needs, choices)
    content = io.StringIO()
    np.savetxt(content, heads, delimiter="\t")
    config = {"sink_size": choices.sinks, "recent_size": choices.recent}
    if needs.local is None:
        why = "which keeps as much of the cache as the plan"
    else:
        why = "the share of heads for which first and recent tokens are certified"
    return Export(
        to="duo",
        model=needs.model,
        files={HEADS: content.getvalue().encode(), CONFIG: as_json(config)},
        use=f"load_attn_pattern(folder), then sparsify with sparsity={sparsity:.4g}, {why}",
        lost=(
            "DuoAttention has two kinds of heads, full and streaming: sizes between them, and "
            "samples of the far keys, are lost."
        ),
        numbers={**config, "sparsity": sparsity},
        table=pd.DataFrame(
            {
                "layer": np.arange(len(heads)),
                "mean": heads.mean(1),
                "least": heads.min(1),
                "most": heads.max(1),
            }
        ),
    )


def check(folder: Path) -> tuple[Array, int, int]:
    """Numbers of the heads, sink size and recent size, as DuoAttention reads them."""
    path = folder / HEADS
    try:
        rows = read_bytes(path, LARGEST).decode().splitlines()
        heads = np.loadtxt(rows, dtype=float, delimiter="\t", ndmin=2) if rows else np.empty(0)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}.") from None
    fine = heads.size > 0 and bool(((heads >= 0) & (heads <= 1)).all())
    must(fine, path, "rows of layers with a number between 0 and 1 for each key-value head")
    config = read_object(folder / CONFIG)
    sizes = [config.get(name) for name in ("sink_size", "recent_size")]
    must(all(map(is_count, sizes)), folder / CONFIG, "an object with sink_size and recent_size")
    return heads, int(config["sink_size"]), int(config["recent_size"])


FORMAT = Format(make, check)
