"""Eviction: KL divergence after the cut against the share of keys kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from attnlimit.models.eviction.rules import (
    Evict,
    ExpectedAttention,
    SnapKV,
    StreamingLLM,
    Tova,
)
from attnlimit.models.loading import load_once
from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.planning.error import evaluate, output_errors
from attnlimit.planning.probes import output_weights
from attnlimit.reproduce.compare import SKEWNESS, groups, where
from attnlimit.reproduce.documents import passage, weights
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import panel, points
from attnlimit.result import format_pm
from prediction_error import predicted_with_error

OURS, SIZED = "weighted", "weighted, sized by output"
RULES: dict[str, Any] = {
    SIZED: Evict,
    OURS: Evict,
    "SnapKV": SnapKV,
    "Expected Attention": ExpectedAttention,
    "TOVA": Tova,
    "StreamingLLM": StreamingLLM,
}
OTHERS = [name for name in RULES if name not in (OURS, SIZED)]
TEXTS = [
    "wikipedia:Amphibian",
    "sotu:Clinton 1998",
    "wikipedia:Ayn Rand",
    "sotu:Roosevelt 1905",
    "wikipedia:Agriculture",
]


class Eviction(Experiment):
    """KL after a cut against the share kept; and predicted where the second half comes after."""

    name = "eviction"
    title = "KV cache eviction: KL after the cut against the share of keys kept"

    def config(self, paper: bool) -> Config:
        return weights("smollm2") | {
            "texts": TEXTS if paper else TEXTS[:2],
            "texts_licence": "Wikipedia: CC BY-SA 3.0 and GFDL; addresses: public domain",
            "prompt": 1000 if paper else 300,
            "after": 200 if paper else 100,
            "keep": [0.5, 0.25, 0.1],
            "draws": 5 if paper else 2,
            "probes": 4 if paper else 3,
            "weights_from": ["wikipedia:Anarchism", 500 if paper else 200],
        }

    def shards(self, config: Config) -> list[Shard]:
        return [
            {**config, "text": text, "part": part}
            for part in ("after", "half")
            for text in config["texts"]
        ]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Cut after the prompt by all rules; or after its first half by ours, predicted too."""
        model, number = load_once(shard["model"]), int(seed.generate_state(1)[0])
        ids = passage(shard["model"], shard["text"], shard["prompt"] + shard["after"])
        half = shard["part"] == "half"
        cut = shard["prompt"] // 2 if half else shard["prompt"]
        ids = ids[: shard["prompt"]] if half else ids
        names = [SIZED, OURS] if half else list(RULES)
        sizes = output_weights(model, passage(shard["model"], *shard["weights_from"]))
        more = {SIZED: {"sizes": sizes}}
        chosen = {
            (name, keep): RULES[name](keep, **more.get(name, {}))
            for name in names
            for keep in shard["keep"]
        }
        rules = {f"{name} {keep:g}": rule for (name, keep), rule in chosen.items()}
        how = {"prompt": cut, "repeats": shard["draws"], "seed": number}
        results = {key: evaluate(model, ids, rule, **how) for key, rule in rules.items()}
        guess: dict[str, Any] = {}
        if half:
            probes = shard["probes"]
            guess = output_errors(
                model, ids, rules, prompt=cut, probes=probes, seed=number, check=False
            )
        return pd.DataFrame(
            {
                "text": shard["text"],
                "part": shard["part"],
                "rule": name,
                "keep": keep,
                "measured": results[key].kl,
                "stderr": results[key].stderr["kl"],
                SKEWNESS: results[key].skewness,
                "predicted": guess[key].kl if half else np.nan,
                "predicted_stderr": guess[key].stderr if half else np.nan,
                "numerical_error": guess[key].numerical_error if half else np.nan,
                "top1": results[key].top1,
                "cache_bytes": results[key].cache_bytes,
                "dense_bytes": results[key].dense_cache_bytes,
            }
            for (name, keep), key in zip(chosen, rules, strict=True)
        )

    def with_errors(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        return predicted_with_error(curves, config["draws"], stderr="stderr")

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        after, rows = where(curves, part="after"), []
        for (text, keep), part in groups(after, "text", "keep"):
            kl = dict(zip(part["rule"], part["measured"], strict=True))
            ours = where(part, rule=SIZED).iloc[0]
            same = where(curves, part="half", rule=SIZED, text=text, keep=keep).iloc[0]
            best = min(OTHERS, key=kl.__getitem__)
            rows.append(
                {"text": text, "kept": f"{100 * keep:g} %"}
                | {name: kl[name] for name in RULES}
                | {
                    "stderr": ours["stderr"],
                    "best of the others": best,
                    "ratio to it": kl[SIZED] / kl[best],
                    "MB": ours["cache_bytes"] / 1e6,
                    "MB full": ours["dense_bytes"] / 1e6,
                    "second half, predicted": same["predicted"],
                    "second half, measured": format_pm(same["measured"], same["stderr"]),
                }
            )
        return pd.DataFrame(rows)

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        means = _means(where(curves, part="after"))
        return [remark for name in (SIZED, OURS) for remark in _remarks(name, means, curves)]

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        after, y, x = where(curves, part="after"), "KL, nats", "share of keys kept"
        panels = []
        for text, part in groups(after, "text"):
            dots = [points(some, "keep", label=rule) for rule, some in groups(part, "rule")]
            panels.append(panel(text.partition(":")[2], dots, y, x))
        means = _means(after)
        dots = [points(means, "keep", rule, "", rule) for rule in RULES]
        panels.append(panel("Mean over texts", dots, y, x))
        half = where(curves, part="half")
        ends = np.array([half["predicted"].min() * 0.8, half["predicted"].max() * 1.2])
        panels.append(
            panel(
                "Second half of the prompt",
                [
                    Series(ends, ends, "dotted", "equal", REFERENCE),
                    *(points(part, "predicted", group=rule) for rule, part in groups(half, "rule")),
                ],
                "measured KL",
                "predicted KL",
            )
        )
        caption = (
            f"SmolLM2, prompts of {config['prompt']} tokens, KL over the {config['after']} after; "
            f"{config['draws']} draws"
        )
        return FigureSpec(self.title, panels, 3, caption)


def _remarks(name: str, means: pd.DataFrame, curves: pd.DataFrame) -> list[str]:
    """Say how a rule of ours compares with the best other one, and with its prediction."""
    ratios = means[name] / means[OTHERS].min(axis=1)
    half = where(curves, part="half", rule=name)
    gap = half["predicted"] / half["measured"]
    shown = zip(means["keep"], ratios, strict=True)
    return [
        f"Mean over texts, {name}, against the best other rule: "
        + ", ".join(f"{ratio:.2f} at {100 * keep:g} %" for keep, ratio in shown)
        + f"; geometric mean of these ratios {np.exp(np.log(ratios).mean()):.2f}.",
        f"Where the second half of the prompt stands in for what comes, {name}: predicted over "
        f"measured lies between {gap.min():.2f} and {gap.max():.2f}, median {gap.median():.2f}.",
    ]


def _means(after: pd.DataFrame) -> pd.DataFrame:
    """Mean over texts: a row for each share kept, a column for each rule."""
    wide = after.pivot_table("measured", "keep", "rule")[list(RULES)]
    return wide.reset_index().sort_values("keep", ascending=False)


EXPERIMENT = Eviction()
