"""A window plus random tokens (as in BigBird): is its error predicted, head by head?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from attnlimit.models import Capture
from attnlimit.picture import FigureSpec, Series
from attnlimit.reproduce.documents import EveryHead, both
from attnlimit.reproduce.estimates import rate
from attnlimit.reproduce.experiment import Config, Shard
from attnlimit.reproduce.panels import LINEAR, against, pairs, panel
from attnlimit.reproduce.rows import groups, where
from attnlimit.samplers import Iid, Keep, Sampler, Window

SAMPLERS: dict[str, Callable[[int, int], Sampler]] = {
    "window": lambda n, random: Window(n - random, random=random),
    "weighted": lambda n, random: Keep(Window(n - random, random=0), sample=random),
    "iid": lambda n, random: Iid(n),
}
NAMES = {
    "window": "window + 50 random",
    "weighted": "window + 50 random, weighted",
    "iid": "i.i.d.",
}


class WindowAndRandom(EveryHead):
    """The error of each head's outputs, relative to their size."""

    name = "window"
    title = "A window and 50 random tokens on a real BERT: predicted and measured, against i.i.d."

    def config(self, paper: bool) -> Config:
        return self.bert() | {
            "random": 50,
            "shown_n": 128,
            "n": [64, 96, 128, 192, 256, 320, 384],
            "replicates": 200 if paper else 40,
        }

    def measure(self, found: Capture, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        place, rows = shard["place"], []
        outputs = found[place["layer"], place["head"]].output()
        size = outputs.square().sum(1).mean().sqrt().item()
        for scheme, sampler in SAMPLERS.items():
            for n in shard["n"]:
                how = {"sampler": sampler(n, shard["random"]), **place}
                counts = [n] if scheme == "iid" else None
                found_both = both(found, "pointwise", counts, shard["replicates"], seed, **how)
                rows.append((found_both / size).assign(scheme=scheme, n=n))
        return pd.concat(rows, ignore_index=True)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        n, shown = config["n"], config["shown_n"]
        here = curves[curves["n"].isin([n[0], shown, 2 * shown, n[-1]])]
        here = here.assign(gap=(here["predicted"] / here["measured"] - 1).abs())
        columns = {
            "median relative error": ("measured", "median"),
            "predicted": ("predicted", "median"),
            "worst |predicted/measured - 1|": ("gap", "max"),
        }
        table = here.groupby(["scheme", "n"], sort=False, as_index=False).agg(**columns)
        return table.assign(scheme=table["scheme"].map(NAMES))

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        at = where(curves, n=config["shown_n"]).pivot_table("measured", ["layer", "head"], "scheme")
        return [
            *super().remarks(config, curves),
            f"At n = {config['shown_n']} the window with random tokens beats i.i.d. sampling in "
            f"{int((at['window'] < at['iid']).sum())} of {len(at)} heads; weighting the random "
            "tokens by the inverse of their chance helps in "
            f"{int((at['weighted'] < at['window']).sum())}.",
        ]

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        by, rates = ["scheme", "n"], []
        medians = curves.groupby(by, sort=False, as_index=False)[["predicted", "measured"]].median()
        for scheme, part in groups(curves[curves["horizon"] < 3], "scheme"):
            slopes = [rate(head) for _, head in groups(part, "layer", "head")]
            horizons = part.groupby(["layer", "head"], sort=False)["horizon"].first()
            rates.append(Series(horizons, slopes, "points", NAMES[scheme], scheme))
        n, shown_n = config["n"], config["shown_n"]
        title = f"Rate over n = {n[0]} to {n[-1]}, by head"
        typical = "Median over the heads (lines: law, points: measured)"
        y, x = "relative error of the output", "keys seen by a query, n"
        heads = against(where(curves, n=shown_n), "scheme", NAMES)
        panels = (
            panel(typical, pairs(medians, "scheme", names=NAMES), y, x),
            panel(f"Every head at n = {shown_n}", heads, "measured", "predicted"),
            panel(title, rates, "rate", "horizon H", **LINEAR),
        )
        caption = f"{self.about(config)}; the last panel leaves out heads whose horizon is above 3."
        return FigureSpec(self.title, panels, 3, caption)


EXPERIMENT = WindowAndRandom()
