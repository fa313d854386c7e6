"""How many instances of a bag are enough for an attention pooling? Predicted, then drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray

from attnlimit.checks import Array, count, probability, token_list
from attnlimit.errors import BadInput
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result
from attnlimit.samplers import Iid, Sampler, Threshold, TopK, WithoutReplacement
from attnlimit.samplers.base import check_sampler
from attnlimit.sparse.bags.bags import Bags
from attnlimit.sparse.instances.bring import scored_bags
from attnlimit.sparse.instances.measured import measure_bag
from attnlimit.sparse.instances.predicted import instances_read, predict_bag
from attnlimit.sparse.instances.search import smallest_enough
from attnlimit.sparse.instances.seen import SeenBag, seen_bags

SAMPLERS = (WithoutReplacement(), Iid(), TopK(1), Threshold(1.0))
ROOTED = ("feature error", "log-odds error")
"""Averaged as squares; their roots are given."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Enough(Result, Pictured):
    """What reading n instances of every bag does, predicted beside measured."""

    table: pd.DataFrame
    enough: dict[str, int | None]
    """Instances to ask each sampler for; None where no number of them is enough."""
    read: dict[str, float]
    """Different instances of a bag that are read then, on average."""
    change: float
    bags: int
    draws: int
    held_out: bool

    def to_frame(self) -> pd.DataFrame:
        """One row for each sampler, n and quantity."""
        return self.table

    @property
    def answers(self) -> list[str]:
        """One sentence for each sampler."""
        return [
            f"{name}: no n is enough" if size is None
            else f"{name}: n = {size} is enough, and reads {self.read[name]:.3g} of a bag"
            for name, size in self.enough.items()
        ]  # fmt: skip

    def headline(self) -> str:
        """What was asked, of how many bags, and what is enough."""
        how = "scored by poolings that never saw them" if self.held_out else "scored as given"
        asked = f"{self.bags} bags, {how}; {self.draws} draws of each."
        if not self.enough:
            return asked
        return (
            f"{asked} For a change of at most {self.change:.3g} of the decisions: "
            f"{'; '.join(self.answers)}."
        )

    def wide(self) -> pd.DataFrame:
        """One row for each sampler and n, predicted and measured side by side."""
        rows = []
        for (sampler, n), part in self.table.groupby(["sampler", "n"], sort=False):
            row: dict[str, Any] = {"sampler": sampler, "n": n, "read": part["read"].iloc[0]}
            for one in part.itertuples():
                row[f"{one.quantity}"] = one.predicted
                row[f"{one.quantity}: drawn"] = f"{one.measured:.4f} ± {one.stderr:.4f}"
            rows.append(row)
        return pd.DataFrame(rows)

    def panel(self, quantity: str = ROOTED[0]) -> Panel:
        """One quantity against the instances that are read."""
        chosen = self.table[self.table["quantity"] == quantity]
        series: list[Series] = []
        for name, part in chosen.groupby("sampler", sort=False):
            series += [
                Series(part["read"], part["predicted"], "line", str(name), str(name)),
                Series(part["read"], part["measured"], "points", None, str(name), part["stderr"]),
            ]
        return Panel(quantity, "instances read of a bag", quantity, series, y_scale="linear")


def enough(
    bags: Bags | Sequence[ArrayLike] | None,
    pooling: Any,
    n: ArrayLike = (2, 4, 8, 16),
    *,
    samplers: Sampler | Sequence[Sampler] = SAMPLERS,
    change: float = 0.01,
    signal: Sequence[NDArray[np.bool_]] | None = None,
    draws: int = 200,
    most: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Enough:
    """Error of the pooled feature and change of the decision when n instances of a bag are read.

    Parameters
    ----------
    bags : Bags, or a list of arrays (instances, dim)
        None, if the pooling already knows its scores (`ScoredBags`).
    pooling : estimator, GatedAttention, torch module or ScoredBags
        A fitted `AttentionPooling` or `MeanPooling` is used as it is. One that is not fitted is
        fitted to labelled bags, five times, and every bag is scored by a fit that never saw it.
    n : sequence of int
        Instances drawn or kept, each at least 2.
    samplers : samplers
        How: those that can be sized are given each n, others are taken as they are.
    change : float
        Part of the decisions that may change; the smallest n for it is looked for.
    signal : sequence of boolean arrays, optional
        Which instances carry the signal; by default those that would make a bag positive alone.
    draws : int
        Draws of each bag to measure beside the prediction.
    most : int, optional
        Ask at most so many bags, evenly spaced among all.
    """
    sizes = [int(size) for size in token_list(n)]
    chosen = [samplers] if isinstance(samplers, Sampler) else list(samplers)
    if not chosen:
        raise BadInput("samplers is empty; give at least one, such as al.WithoutReplacement().")
    change, draws = probability(change, "change"), count(draws, "draws", smallest=2)
    groups, held_out = scored_bags(bags, pooling)
    total = sum(map(len, groups))
    if signal is not None and (len(signal) != total or held_out):
        raise BadInput(
            f"signal must mark the instances of {total} bags in their order, scored as given."
        )
    seen = [bag for group in groups for bag in seen_bags(group, signal)]
    if most is not None and count(most, "most") < total:
        seen = [seen[i] for i in np.linspace(0, total - 1, most).astype(int)]
    steps = [(one, size) for one in map(check_sampler, chosen) for size in _sizes(one, sizes)]
    decides = seen[0].log_odds is not None
    many, done = len(steps) + decides * len(chosen), 0
    generator = torch.Generator().manual_seed(count(seed, "seed", smallest=0))
    rows: list[dict[str, Any]] = []
    found: dict[str, int | None] = {}
    read: dict[str, float] = {}
    for sampler, size in steps:
        sized = sampler.sized(size) if sampler.sizable else sampler
        for row in _rows(sized, seen, draws, generator):
            rows.append({"sampler": _family(sampler), "n": size, **row})
        done += 1
        _tell(progress, done, many)
    for sampler in chosen if decides else ():
        if sampler.sizable:
            name = _family(sampler)
            found[name] = smallest = smallest_enough(sampler, seen, change)
            if smallest is not None:
                read[name] = instances_read(sampler.sized(smallest), seen)
        done += 1
        _tell(progress, done, many)
    return Enough(pd.DataFrame(rows), found, read, change, len(seen), draws, held_out)


def _rows(
    sampler: Sampler, seen: Sequence[SeenBag], draws: int, generator: torch.Generator
) -> list[dict[str, Any]]:
    """One row for each quantity, averaged over the bags that have it."""
    predicted = [predict_bag(sampler, bag) for bag in seen]
    once = 1 if sampler.draws == "nothing" else draws
    measured = [measure_bag(sampler, bag, once, generator) for bag in seen]
    read = float(np.mean([bag["read"] for bag in predicted]))
    rows = []
    for name in dict.fromkeys(name for bag in predicted for name in bag if name != "read"):
        law = np.array([bag[name] for bag in predicted if name in bag])
        drawn = np.mean([bag[name] for bag in measured if name in bag], axis=0)
        rows.append({"read": read, "quantity": name, **_summary(law, drawn, name in ROOTED)})
    return rows


def _summary(law: Array, drawn: Array, rooted: bool) -> dict[str, float | int]:
    """Means over bags, of the law and of draws, with standard errors over draws and over bags."""
    mean, found = float(law.mean()), float(drawn.mean())
    over_draws = float(drawn.std(ddof=1) / np.sqrt(len(drawn))) if len(drawn) > 1 else 0.0
    over_bags = float(law.std(ddof=1) / np.sqrt(len(law))) if len(law) > 1 else float("nan")
    if rooted:
        over_draws /= max(2 * np.sqrt(found), 1e-300)
        over_bags /= max(2 * np.sqrt(mean), 1e-300)
        mean, found = np.sqrt(mean), np.sqrt(found)
    return {
        "predicted": float(mean), "measured": float(found), "stderr": over_draws,
        "bags_stderr": over_bags, "bags": len(law),
    }  # fmt: skip


def _sizes(sampler: Sampler, sizes: list[int]) -> list[int]:
    return sizes if sampler.sizable else [0]


def _family(sampler: Sampler) -> str:
    """A sampler's name without its size."""
    names = {TopK: "top k", Threshold: "threshold", Iid: "i.i.d."}
    names[WithoutReplacement] = "without replacement"
    return names.get(type(sampler), sampler.name)


def _tell(progress: Progress | None, done: int, many: int) -> None:
    if progress is not None:
        progress(done, many)
