"""How does kvpress keep a plan's budgets? As the budget curves of its LUKVPress.

Curves are prune ratios (99, layers, key-value heads); entry i is for a global ratio of (i+1) %. A
plan is one of the 99, where each head keeps its own share. The others lie on straight lines: from
all keys to the plan, and from the plan to none.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd

from attnlimit.budgets.exports.folder import ABOUT, Choices, Export, Format, must, read_object
from attnlimit.budgets.exports.needs import Needs
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.files import read_bytes

FILE = "budget_curves.npy"
RATIOS = np.arange(1, 100) / 100
LARGEST = 1 << 30


def budget_curves(shares: Array) -> tuple[Array, int]:
    """Prune ratios (99, L, G) through the shares (L, G) that are kept, and the plan's own per cent.

    Every curve rises with the global ratio, and its mean over the heads is the ratio, but for the
    plan's own entry: there the ratio is rounded and the heads are not.
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


def make(needs: Needs, choices: Choices) -> Export:
    """Curves of a plan; a head's share holds its sinks at least."""
    planned = needs.shares()
    shares = np.maximum(planned, min(1.0, (choices.sinks + 1) / needs.context))
    curves, own = budget_curves(shares)
    smallest = int(shares.min() * needs.context)
    window = max(0, min(choices.recent, smallest - choices.sinks))
    content = io.BytesIO()
    np.save(content, curves, allow_pickle=False)
    ratio = own / 100
    raised = int((shares > planned).sum())
    lost = needs.dropping()
    if raised:
        lost = f"{lost[:-1]}; heads that keep more than planned, for their sinks: {raised}."
    table = pd.DataFrame(
        {
            "layer": np.arange(len(shares)),
            "kept": shares.mean(1),
            "least": shares.min(1),
            "most": shares.max(1),
        }
    )
    return Export(
        to="kvpress",
        model=needs.model,
        files={FILE: content.getvalue()},
        use=(
            f"press = LUKVPress(compression_ratio={ratio:g}, sink={choices.sinks}, "
            f"window={window}); press._budget_curves = numpy.load({FILE!r}), before its first use"
        ),
        lost=lost,
        numbers={"compression_ratio": ratio, "sink": choices.sinks, "window": window},
        table=table,
    )


def check(folder: Path) -> Array:
    """Curves that LUKVPress takes: their shape, ratios between 0 and 1, rising."""
    path = folder / FILE
    try:
        curves = np.load(io.BytesIO(read_bytes(path, LARGEST)), allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise BadInput(f"{path} cannot be read: {error}.") from None
    shaped = isinstance(curves, np.ndarray) and curves.ndim == 3 and curves.shape[0] == 99
    must(shaped and curves.dtype.kind == "f", path, "numbers (99, layers, key-value heads)")
    must(bool(((curves >= 0) & (curves <= 1)).all()), path, "prune ratios between 0 and 1")
    must(bool((np.diff(curves, axis=0) >= -1e-9).all()), path, "ratios that rise with the first")
    ratio = read_object(folder / ABOUT).get("compression_ratio")
    must(ratio in RATIOS.tolist(), folder / ABOUT, "a compression_ratio of 0.01 to 0.99")
    return np.asarray(curves, dtype=float)


FORMAT = Format(make, check)
