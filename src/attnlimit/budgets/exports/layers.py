"""How many tokens does each layer of a paged cache keep? Budgets in whole pages.

A page holds a slot for every key-value head of a layer, so a layer has as many slots as its most
demanding key-value head needs. Sinks and recent tokens are among them, never on top.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

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

FILE = "layer_budgets.json"
COUNTS = ("context", "page_size", "sinks", "recent", "total_tokens", "total_pages", "dense_pages")


def make(needs: Needs, choices: Choices) -> Export:
    """Tokens and pages of every layer, rounded up."""
    context, page = needs.context, choices.page_size
    protected = min(context, choices.sinks + choices.recent)
    asked = np.ceil(np.round(needs.shares().max(1) * context, 6)).astype(int)
    pages = -(-np.maximum(asked, protected) // page)
    table = pd.DataFrame(
        {
            "layer": np.arange(len(pages)),
            "planned": asked,
            "tokens": pages * page,
            "pages": pages,
        }
    )
    total = int(pages.sum())
    whole = -(-context // page) * len(pages)
    content = {
        "context": context,
        "page_size": page,
        "sinks": choices.sinks,
        "recent": choices.recent,
        "layers": [
            {"layer": layer, "planned": int(asked[layer]), "tokens": int(n * page), "pages": int(n)}
            for layer, n in enumerate(pages)
        ],
        "total_tokens": total * page,
        "total_pages": total,
        "dense_pages": whole,
    }
    kept, dropping = total / whole, needs.dropping()
    return Export(
        to="layers",
        model=needs.model,
        files={FILE: as_json(content)},
        use=f"give each layer its tokens of {FILE}; all of them are {kept:.1%} of the pages",
        lost=(
            "Heads of a layer share its pages, so each keeps as many keys as the most demanding "
            f"one; {dropping[0].lower()}{dropping[1:]}"
        ),
        numbers={"kept": kept},
        table=table,
    )


def check(folder: Path) -> dict[str, Any]:
    """Budgets whose layers are in order and whole pages, and whose totals are their sums."""
    path = folder / FILE
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


FORMAT = Format(make, check)
