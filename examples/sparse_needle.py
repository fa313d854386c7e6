"""A needle in a bag of L tokens: how strong must it be? log L for attention, sqrt L for means."""

from pathlib import Path

import numpy as np

from attnlimit import sparse
from attnlimit.picture import FigureSpec, Panel, Series
from attnlimit.report.figures import draw

lengths = 2 ** np.arange(4, 21, 4)
needed = {
    name: [sparse.strength_needed(0.05, int(length), model) for length in lengths]
    for name, model in (
        ("mean pooling, or any linear rule", "pooled"),
        ("attention, infinitely sharp", "scan"),
        ("best possible (Bayes)", "bayes"),
    )
}
for name, values in needed.items():
    print(f"{name:35s}", " ".join(f"{value:8.2f}" for value in values))

styles = ("line", "dashed", "points")
series = tuple(
    Series(lengths, values, style, name, name)
    for (name, values), style in zip(needed.items(), styles, strict=True)
)
panel = Panel("5 % error", "tokens in a bag, L", "signal strength", series)
out = Path("gallery")
out.mkdir(exist_ok=True)
draw(FigureSpec("How strong a needle must be", (panel,), columns=1), out, "sparse_needle")
