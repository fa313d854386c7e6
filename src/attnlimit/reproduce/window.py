"""A window plus random tokens (as in BigBird): is its error predicted, head by head?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.models import Capture
from attnlimit.models.heads.curves import measure_capture, predict_capture
from attnlimit.report.spec import FigureSpec, Series
from attnlimit.reproduce.documents import EveryHead
from attnlimit.reproduce.experiment import Config, Shard
from attnlimit.reproduce.panels import LINEAR, against, pair, panel
from attnlimit.reproduce.rows import groups, where
from attnlimit.samplers import Iid, Keep, Sampler, Window

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
        number, draws, place = int(seed.generate_state(1)[0]), shard["replicates"], shard["place"]
        outputs = found[place["layer"], place["head"]].output()
        size = outputs.square().sum(1).mean().sqrt().item()
        rows = []
        for scheme in NAMES:
            for n in shard["n"]:
                how = {"sampler": _sampler(scheme, n, shard["random"]), **place}
                counts = [n] if scheme == "iid" else None
                law = predict_capture(found, "pointwise", counts, **how)
                drawn = measure_capture(found, "pointwise", counts, draws, number, **how)
                values = np.array([law.root[0], drawn.root[0], drawn.root_stderr[0]]) / size
                rows.append((scheme, n, *values))
        return pd.DataFrame(rows, columns=["scheme", "n", "predicted", "measured", "stderr"])

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        rows, shown = [], config["shown_n"]
        for (scheme, n), part in groups(curves, "scheme", "n"):
            if n in (config["n"][0], shown, 2 * shown, config["n"][-1]):
                gap = (part["predicted"] / part["measured"] - 1).abs()
                rows.append(
                    {
                        "scheme": NAMES[scheme],
                        "n": n,
                        "median relative error": part["measured"].median(),
                        "predicted": part["predicted"].median(),
                        "worst |predicted/measured - 1|": gap.max(),
                    }
                )
        return pd.DataFrame(rows)

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
        medians: list[Series] = []
        rates = []
        for scheme, part in groups(curves, "scheme"):
            middle = part.groupby("n", as_index=False)[["predicted", "measured"]].median()
            medians += pair(middle, "n", NAMES[scheme])
            shown = part[part["horizon"] < 3].groupby(["layer", "head"])
            slopes = [-np.polyfit(np.log(x.n), np.log(x.measured), 1)[0] for _, x in shown]
            horizons = shown["horizon"].first()
            rates.append(Series(horizons, slopes, "points", NAMES[scheme], NAMES[scheme]))
        n, shown_n = config["n"], config["shown_n"]
        title = f"Rate over n = {n[0]} to {n[-1]}, by head"
        heads = against(where(curves, n=shown_n), "scheme", NAMES)
        panels = (
            panel(
                "Median over the heads (lines: law, points: measured)",
                medians,
                "relative error of the output",
                "keys seen by a query, n",
            ),
            panel(f"Every head at n = {shown_n}", heads, "measured", "predicted"),
            panel(title, rates, "rate", "horizon H", **LINEAR),
        )
        caption = f"{self.about(config)}; the last panel leaves out heads whose horizon is above 3."
        return FigureSpec(self.title, panels, 3, caption)


def _sampler(scheme: str, n: int, random: int) -> Sampler:
    if scheme == "iid":
        return Iid(n)
    if scheme == "weighted":
        return Keep(Window(n - random, random=0), sample=random)
    return Window(n - random, random=random)


EXPERIMENT = WindowAndRandom()
