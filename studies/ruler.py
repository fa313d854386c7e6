"""RULER's tasks on few bytes: what a rule does to keys that are rare and decisive.

The text of a task is read densely, once for all rules; the question and the answer with each of
them, or on a cache that was cut before the question. `make peers` makes the samples with RULER's
own generators (arXiv:2404.06654), in an environment of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from attnlimit.errors import BadInput
from attnlimit.models.loading import load_once
from attnlimit.models.sampled import sampled_attention
from attnlimit.picture import FigureSpec, Series
from attnlimit.planning.changes import as_change
from attnlimit.reproduce.compare import groups
from attnlimit.reproduce.documents import weights
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import panel, points
from rivals import (
    EIGHT,
    EIGHT_BITS,
    EIGHT_NAME,
    QUANTIZED,
    TWO,
    Prompted,
    held_share,
    log_mean,
    rules_of,
    table_of,
)

READING = {
    TWO: [f"two-level:{c}" for c in (4.0, 16.0, 48.0, 128.0, 320.0)],
    "MagicPIG": [
        "magicpig:10,50,4,16", "magicpig:10,75,4,32", "magicpig:9,50,4,32", "magicpig:8,50,4,64",
    ],
    "StreamingLLM": [f"sinks-recent:4,{{n{part}}}" for part in (64, 32, 16)],
}  # fmt: skip
STORED = [EIGHT, "Expected Attention, 8 bits"]
SPARE = 1.02
"""Factor by which bytes may exceed a share."""


class Ruler(Experiment):
    """Score, agreement with the dense model's answer, and KL on its tokens, by task and rule."""

    name = "ruler"
    title = "Tasks of RULER on few bytes: score, agreement with the dense answer, and its KL"
    minutes = 15.0

    def config(self, paper: bool) -> Config:
        return weights("smollm2") | {
            "samples": "runs/peers/ruler.json",
            "each": 3 if paper else 1,
            "answer": 32,
            "reading": list(READING),
            "rules": STORED,
            "shares": [0.1, 0.05, 0.02],
            "weights_from": ["wikipedia:Agriculture", 400],
        }

    def shards(self, config: Config) -> list[Shard]:
        taken: dict[str, int] = {}
        shards = []
        for number, sample in enumerate(samples_of(config["samples"])):
            taken[sample["task"]] = taken.get(sample["task"], 0) + 1
            if taken[sample["task"]] <= config["each"]:
                about = {"sample": number, "task": sample["task"], "hash": hash_of(sample)}
                shards.append({**config, **about})
        return shards

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Read one text, and answer its question with every rule."""
        sample = samples_of(shard["samples"])[shard["sample"]]
        answers = Answers(shard, sample, int(seed.generate_state(1)[0]) % 2**31)
        rows = [answers.dense_row, *answers.read(), *answers.stored()]
        return pd.DataFrame(rows).assign(task=sample["task"], sample=shard["sample"])

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        rows = []
        for (rule, _), part in groups(curves, "rule", "share"):
            row = {"rule": rule, "% of bytes": round(100 * float(part["bytes"].mean()), 1)}
            for task, some in groups(part, "task"):
                cell = f"{some['score'].mean():.0%}"
                if rule != "dense":
                    cell += f", {some['agrees'].mean():.0%}, {log_mean(some['kl']):.2g}"
                row[str(task)] = cell
            row["KL of all"] = "" if rule == "dense" else spread(part["kl"])
            rows.append(row)
        return pd.DataFrame(rows)

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        return [
            "By task: mean score, share of the answer's tokens that are the dense model's, and "
            f"geometric mean of their KL in nats; {config['each']} samples a task, answers of at "
            f"most {config['answer']} tokens. Each rule has its best setting within that share of "
            "the bytes; where it has none, the row is left out."
        ]

    def compared(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame | None:
        return None

    def finding(self, config: Config, curves: pd.DataFrame) -> str:
        known = curves[curves["rule"] != "dense"]
        means = known.groupby(["share", "rule"], sort=False)["kl"].agg(log_mean).reset_index()
        best = means.loc[means.groupby("share", sort=False)["kl"].idxmin()]
        lowest = ", ".join(
            f"{rule} at {share:.0%} ({kl:.2g} nats)"
            for share, rule, kl in best[["share", "rule", "kl"]].itertuples(index=False)
        )
        return f"Lowest KL on the answers' tokens: {lowest}."

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        panels = []
        for task, part in groups(curves[curves["rule"] != "dense"], "task"):
            series = []
            for rule, some in groups(part, "rule"):
                means = some.groupby("share").agg(bytes=("bytes", "mean"), kl=("kl", log_mean))
                means = means.sort_values("bytes")
                series.append(points(means, "bytes", "kl", "", rule, rule))
                series.append(Series(means["bytes"], means["kl"], "dotted", None, rule))
            title = str(task).capitalize()
            panels.append(panel(title, series, "KL, nats", "share of the bytes read or stored"))
        caption = f"SmolLM2, answers to RULER's tasks, {config['each']} samples a task"
        return FigureSpec(self.title, panels, 2, caption)


class Answers:
    """Answers to the question of one sample."""

    def __init__(self, shard: Shard, sample: dict[str, Any], seed: int) -> None:
        self.loaded, self.sample, self.seed = load_once(shard["model"]), sample, seed
        text, question = (self.loaded.ids(sample[part]) for part in ("text", "question"))
        self.shard = shard | {"tokens": len(text), "keep": shard["shares"], "settings_up_to": 0}
        self.question, rules = torch.tensor([question]), rules_of(self.shard)
        self.prompted = Prompted(self.shard, torch.tensor([text]), self.question, rules)
        answer = self.write(self.prompted.copied(), {})
        self.prompted.follow(
            torch.cat([self.question, torch.tensor([answer[:-1]], dtype=torch.long)], 1),
            first=len(question) - 1,
        )
        self.score = self.score_of(answer)
        self.dense_row = {"rule": "dense", "share": 1.0, "bytes": 1.0, "score": self.score}

    def write(self, cache: Any, samplers: Any, before: Any = None) -> list[int]:
        """Tokens of the likeliest answer."""
        network, tokens = self.prompted.network, self.question
        answer: list[int] = []
        with (
            torch.no_grad(),
            sampled_attention(network, samplers, seed=self.seed, before=before),
        ):
            for _ in range(self.shard["answer"]):
                output = network(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
                answer.append(int(output.logits[0, -1].argmax()))
                tokens = torch.tensor([answer[-1:]])
        return answer

    def score_of(self, answer: list[int]) -> float:
        """Share of the words that an answer must have, as RULER counts them."""
        assert self.loaded.tokenizer is not None
        text = self.loaded.tokenizer.decode(answer).lower()
        return float(np.mean([word.lower() in text for word in self.sample["answer"]]))

    def row(self, rule: str, share: float, found: dict[str, Any], score: float) -> dict[str, Any]:
        """One row of the curves."""
        numbers = {"bytes": found["bytes"], "kl": found["kl"], "agrees": found["top1"]}
        return {"rule": rule, "share": share, "score": score, **numbers}

    def read(self) -> Iterator[dict[str, Any]]:
        """Rules that choose keys to read: of each the best setting within a share of the bytes."""
        prompted = self.prompted
        for rule in self.shard["reading"]:
            every = []
            for spec in READING[rule]:
                table = table_of(prompted.network, spec, self.shard["tokens"])
                found = prompted.distances(prompted.copied(), table, self.seed)
                every.append((table, found | {"bytes": found["read"]}))
            for share in self.shard["shares"]:
                within = [(t, f) for t, f in every if f["bytes"] <= SPARE * share]
                if within:
                    table, found = min(within, key=lambda one: float(one[1]["kl"]))
                    same = found["top1"] == 1
                    answer = [] if same else self.write(prompted.copied(), table)
                    score = self.score if same else self.score_of(answer)
                    yield self.row(rule, share, found, score)

    def stored(self) -> Iterator[dict[str, Any]]:
        """Rules that cut the cache before the question."""
        prompted = self.prompted
        rounding: Any = as_change(QUANTIZED).bound_to(prompted.network, 2)
        scores: dict[str, dict[str, Any]] = {}
        for (name, setting), rule in prompted.rules.items():
            eight = name.endswith(EIGHT_NAME)
            before = rounding.rounding(self.seed) if eight else None
            cut = prompted.cut(rule, self.seed, scores.setdefault(name, {}))
            held = held_share(cut, rule, EIGHT_BITS if eight else 1.0)
            found = prompted.distances(cut, {}, self.seed, before) | {"bytes": held}
            score = self.score
            if found["top1"] < 1:
                cut = prompted.cut(rule, self.seed, scores[name])
                score = self.score_of(self.write(cut, {}, before))
            yield self.row(name, float(setting.split(", ")[1]), found, score)


def samples_of(path: str) -> list[dict[str, Any]]:
    """Samples that RULER's generators wrote."""
    if not Path(path).exists():
        raise BadInput(f"There is no {path}; `make peers` makes it with RULER's generators.")
    samples: list[dict[str, Any]] = json.loads(Path(path).read_text(encoding="utf-8"))
    return samples


def hash_of(sample: dict[str, Any]) -> str:
    """First digits of the hash of a sample."""
    return hashlib.sha256(json.dumps(sample).encode()).hexdigest()[:12]


def spread(values: pd.Series) -> str:
    """Geometric mean, and its standard error as a factor."""
    logs = np.log(values.clip(lower=1e-9))
    factor = np.exp(logs.std(ddof=1) / len(logs) ** 0.5) if len(logs) > 1 else float("nan")
    return f"{np.exp(logs.mean()):.2g} ×/÷ {factor:.2f}"


EXPERIMENT = Ruler()
