"""A plan made on one text, evaluated on ten others, beside top-k of the same error."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pandas as pd

from attnlimit.checks import Array
from attnlimit.models.loading import load_once
from attnlimit.picture import FigureSpec, Series
from attnlimit.planning.plan import Plan
from attnlimit.planning.planner import plan as make_plan
from attnlimit.reproduce.compare import with_uncertainty
from attnlimit.reproduce.documents import passage, weights
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import panel
from attnlimit.samplers import TopK
from list_panels import across
from thinned import Dense, dense

FALL = 2.0
"""Power of k by which top-k's error is taken to fall before it is known."""


class HeldOut(Experiment):
    """A plan for nine of ten other texts, and how many keys top-k reads for what it gives."""

    name = "held-out"
    title = "A plan made on one text, used on ten others"

    def config(self, paper: bool) -> Config:
        articles = ("Alabama", "Autism", "Aristotle", "Albedo", "Achilles")
        speeches = ("Lincoln 1861", "Kennedy 1962", "Washington 1790", "Wilson 1913", "Reagan 1982")
        return weights("smollm2") | {
            "planned": "wikipedia:Anarchism",
            "texts": [f"wikipedia:{article}" for article in articles]
            + [f"sotu:{speech}" for speech in speeches],
            "tokens": 1024 if paper else 400,
            "kl": 0.01,
            "margin": 1.57,  # what one text's plan keeps back for nine of ten others
            "per": "model",
            "probes": 4,
            "repeats": 2,
        }

    def shards(self, config: Config) -> list[Shard]:
        return [{**config, "text": text} for text in config["texts"]]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Run the plan on one text, and look for top-k of the same error there."""
        plan = _planned(*(shard[key] for key in _planned_by))
        run = dense(shard["model"], shard["text"], shard["tokens"])
        result = run.against(plan, int(seed.generate_state(1)[0]), shard["repeats"])
        row = {
            "text": shard["text"],
            "predicted": plan.predicted,
            "bound": plan.next_text,
            "of": plan.mean_visible,
            "top-k": _top_k(run, result["measured"], 4 * plan.mean_keys),
        }
        return pd.DataFrame([{**row, **result}])

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "text": curves["text"],
                "planned": curves["predicted"],
                "bound": curves["bound"],
                "measured": with_uncertainty(curves, stderr="measured_stderr"),
                "below the bound": np.where(curves["measured"] <= curves["bound"], "yes", "no"),
                "keys": curves["keys"],
                "of": curves["of"],
                "keys of top-k": curves["top-k"],
                "part of top-k's": curves["keys"] / curves["top-k"],
            }
        )

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        kept = int((curves["measured"] <= curves["bound"]).sum())
        part = curves["keys"].mean() / curves["top-k"].mean()
        return [
            f"Planned on {config['planned']} for {curves['predicted'].mean():.3g} nats, so that "
            f"nine of ten others stay below {curves['bound'].mean():.3g}: {kept} of "
            f"{len(curves)} do.",
            f"Queries read {curves['keys'].mean():.1f} of {curves['of'].mean():.1f} keys, "
            f"{part:.2f} of the {curves['top-k'].mean():.1f} that top-k reads for the same error.",
        ]

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        names = [text.partition(":")[2] for text in curves["text"]]
        ends = [-0.5, len(curves) - 0.5]
        shown = curves.assign(place=np.arange(len(curves)))
        error = [
            *(
                Series([curves[name].mean()] * 2, ends, style, name, "plan")
                for name, style in (("predicted", "line"), ("bound", "dashed"))
            ),
            across(shown, "measured", "plan"),
        ]
        keys = [
            across(shown, "top-k, same error", "top-k", "top-k"),
            across(shown, "plan", "plan", "keys"),
        ]
        loss, read, listed = "KL of the next token, nats", "keys read by a query", "linear"
        panels = [
            panel("Error on other texts", error, "", loss, y_scale=listed, names=names),
            panel("Keys for that error", keys, "", read, y_scale=listed, names=names),
        ]
        caption = f"SmolLM2, {config['tokens']} tokens of each text; lines: the plan's; points: run"
        return FigureSpec(self.title, panels, 2, caption)


_planned_by = ("model", "planned", "tokens", "kl", "margin", "per", "probes", "seed")


@lru_cache(maxsize=1)
def _planned(
    model: str, text: str, tokens: int, kl: float, margin: float, per: str, probes: int, seed: int
) -> Plan:
    ids = passage(model, text, tokens)
    loaded = load_once(model)
    return make_plan(loaded, ids, kl=kl, per=per, probes=probes, margin=margin, seed=seed)


def _top_k(run: Dense, error: float, guess: float, steps: int = 3) -> float:
    """Keys that top-k reads at an error, from its runs at a few k by lines of logarithms."""
    tokens, size = len(run.encoded.positions), guess
    tried: list[Array] = []
    for _ in range(steps):
        k = int(np.clip(round(size), 1, tokens - 1))
        result = run.against(TopK(k), 0)
        tried.append(np.log([result["measured"], k, result["keys"]]))
        size = _at(error, tried, 1)
    return _at(error, tried, 2)


def _at(error: float, tried: list[Array], column: int) -> float:
    """What a column is at an error: from the nearest run, along the slope of all."""
    table, wanted = np.array(tried), np.log(error)
    spread = np.ptp(table[:, 0])
    slope = np.polyfit(table[:, 0], table[:, column], 1)[0] if spread > 0 else -1 / FALL
    nearest = table[np.abs(table[:, 0] - wanted).argmin()]
    return float(np.exp(nearest[column] + slope * (wanted - nearest[0])))


EXPERIMENT = HeldOut()
