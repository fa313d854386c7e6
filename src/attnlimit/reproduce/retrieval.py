"""What does a model on fewer keys say of a needle? Run, and predicted before."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from attnlimit.models import (
    Evict,
    EvictionError,
    OutputError,
    eviction_errors,
    output_errors,
    spend,
)
from attnlimit.models.capture.encode import encode
from attnlimit.models.load.load import load_once
from attnlimit.models.output.ground import ground_of
from attnlimit.models.output.plan import plan_on
from attnlimit.models.output.planned import OutputPlan
from attnlimit.models.output.target import NextToken
from attnlimit.models.spend.evict.try_evict import read_on
from attnlimit.models.spend.outputs import run
from attnlimit.reproduce.documents import passage
from attnlimit.reproduce.experiment import Shard
from attnlimit.reproduce.haystack import Haystack
from attnlimit.samplers.spec import parse_sampler

DENSE, PLAN = "all keys", "plan"
WEIGHTED, HEAVIEST = "evict, weighted", "evict, heaviest"


class Heaviest(Evict):
    """The heaviest keys by the same weights, the same number in every head, and no correction."""

    weighted = False


def look_sampled(shard: Shard, hidden: Haystack, seed: int) -> Iterator[dict[str, Any]]:
    """Dense attention, samplers and plans, in prompt and question alike."""
    model, target = load_once(shard["model"]), NextToken(hidden.first)
    encoded = encode(model, hidden.ids)
    ways: dict[tuple[str, str], Any] = {
        (spec.partition(":")[0], spec.partition(":")[2]): parse_sampler(spec)
        for spec in shard["samplers"]
    }
    ways |= {(PLAN, f"{plan.target:g} nats"): plan for plan in _plans(*_planned_by(shard))}
    named = {" ".join(way): samplers for way, samplers in ways.items()}
    guess = output_errors(
        model, hidden.ids, named, output=target, probes=shard["probes"], seed=seed
    )
    with torch.no_grad():
        dense = target.read(run(model.model, encoded))
        yield _row(DENSE, "", 1.0, [(0.0, hidden.found(dense))])
        for way, samplers in ways.items():
            name, seen, kept = " ".join(way), [], 0.0
            for draw in range(shard["draws"] if guess[name].variance > 0 else 1):
                with spend(model, samplers, seed=seed + draw) as spent:
                    logs = target.read(run(model.model, encoded))
                kept = spent.mean_keys / spent.mean_visible
                seen.append((target.distance(dense, logs), hidden.found(logs)))
            yield _row(*way, kept, seen) | _foretold(guess[name].value, guess[name])


def look_dropped(shard: Shard, hidden: Haystack, seed: int) -> Iterator[dict[str, Any]]:
    """Caches cut between the text and the question."""
    model, target = load_once(shard["model"]), NextToken(hidden.first)
    rules = {
        f"{name}|{keep}": rule(keep)
        for name, rule in ((WEIGHTED, Evict), (HEAVIEST, Heaviest))
        for keep in shard["keep"]
    }
    drawn = {name: rule for name, rule in rules.items() if rule.weighted}
    guess = eviction_errors(
        model, hidden.ids, drawn, prompt=hidden.prompt, first=hidden.first,
        probes=shard["probes"], seed=seed,
    )  # fmt: skip
    ids = encode(model, hidden.ids).inputs["input_ids"]
    runs = read_on(model.model, ids, rules, hidden.prompt, repeats=shard["draws"], seed=seed)
    skipped = hidden.first - hidden.prompt
    dense = next(runs)[1][skipped:]
    seen: dict[str, list[Any]] = {name: [] for name in rules}
    for name, logs, _ in runs:
        answer = logs[skipped:]
        seen[name].append((target.distance(dense, answer), hidden.found(answer)))
    for name, results in seen.items():
        scheme, _, keep = name.partition("|")
        foretold = _foretold(guess[name].kl, guess[name]) if name in guess else {}
        yield _row(scheme, f"{float(keep):.0%}", float(keep), results) | foretold


def _foretold(kl: float, error: OutputError | EvictionError) -> dict[str, float]:
    """What is said of a prediction."""
    return {
        "predicted": kl,
        "predicted_stderr": error.stderr,
        "numerical_error": error.numerical_error,
        "trusted": float(error.trusted),
    }


def _row(
    scheme: str, size: str, kept: float, seen: list[tuple[float, dict[str, float]]]
) -> dict[str, Any]:
    """Means over draws."""
    distances = [distance for distance, _ in seen]
    several = len(seen) > 1
    return {
        "scheme": scheme,
        "size": size,
        "kept": kept,
        "measured": float(np.mean(distances)),
        "stderr": float(np.std(distances, ddof=1) / len(seen) ** 0.5) if several else np.nan,
        **{name: float(np.mean([found[name] for _, found in seen])) for name in seen[0][1]},
    }


def _planned_by(shard: Shard) -> tuple[str, str, int, tuple[float, ...], int, int]:
    names = ("model", "planned", "tokens")
    model, text, tokens = (shard[name] for name in names)
    return model, text, tokens, tuple(shard["kl"]), shard["probes"], shard["seed"]


@lru_cache(maxsize=1)
def _plans(
    model: str, text: str, tokens: int, kl: tuple[float, ...], probes: int, seed: int
) -> list[OutputPlan]:
    """Plans by head, on a text that has no needle."""
    ids = passage(model, text, tokens)
    ground = ground_of(load_once(model), [ids], "kl", probes=probes, seed=seed)
    return plan_on(ground, "kl", kl, per="head")
