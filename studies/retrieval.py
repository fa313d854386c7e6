"""Output of a model on fewer keys at a needle: predicted and measured."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from attnlimit.models.eviction.rules import Evict
from attnlimit.models.loading import load_once
from attnlimit.models.passes import encode, run
from attnlimit.models.sampled import sampled_attention
from attnlimit.planning.calibration import calibration_of
from attnlimit.planning.changes import as_change
from attnlimit.planning.error import OutputError, changed_runs, output_errors
from attnlimit.planning.plan import Plan
from attnlimit.planning.planner import make_plans
from attnlimit.planning.target import NextToken
from attnlimit.reproduce.documents import passage
from attnlimit.reproduce.experiment import Shard
from attnlimit.samplers.spec import parse_sampler
from haystack import Haystack

DENSE, PLAN = "all keys", "plan"
WEIGHTED, HEAVIEST = "evict, weighted", "evict, heaviest"


class Heaviest(Evict):
    """The heaviest keys by the same weights, the same number in every head, and no correction."""

    weighted = False


def look_sampled(shard: Shard, hidden: Haystack, seed: int) -> Iterator[dict[str, Any]]:
    """Dense attention, samplers and plans, in prompt and question alike."""
    model, target = load_once(shard["model"]), NextToken(first=hidden.first)
    encoded = encode(model, hidden.ids)
    ways: dict[tuple[str, str], Any] = {
        (spec.partition(":")[0], spec.partition(":")[2]): parse_sampler(spec)
        for spec in shard["samplers"]
    }
    ways |= {(PLAN, f"{plan.target.distance:g} nats"): plan for plan in _plans(*_planned_by(shard))}
    named = {" ".join(way): samplers for way, samplers in ways.items()}
    how = {"output": target, "probes": shard["probes"], "seed": seed, "check": False}
    guess = output_errors(model, hidden.ids, named, **how)
    with torch.no_grad():
        dense = target.read(run(model.model, encoded))
        yield _row(DENSE, "", 1.0, [(0.0, hidden.found(dense))])
        for way, samplers in ways.items():
            name, seen, kept = " ".join(way), [], 0.0
            for draw in range(shard["draws"] if guess[name].variance > 0 else 1):
                with sampled_attention(model, samplers, seed=seed + draw) as stats:
                    logs = target.read(run(model.model, encoded))
                kept = stats.mean_keys / stats.mean_visible
                seen.append((target.between(dense, logs), hidden.found(logs)))
            yield _row(*way, kept, seen) | _predicted_with_error(guess[name].value, guess[name])


def look_dropped(shard: Shard, hidden: Haystack, seed: int) -> Iterator[dict[str, Any]]:
    """Caches cut between the text and the question."""
    model, target = load_once(shard["model"]), NextToken(first=hidden.first)
    rules = {
        f"{name}|{keep}": rule(keep)
        for name, rule in ((WEIGHTED, Evict), (HEAVIEST, Heaviest))
        for keep in shard["keep"]
    }
    drawn = {name: rule for name, rule in rules.items() if rule.weighted}
    how = {"output": target, "probes": shard["probes"], "seed": seed, "check": False}
    guess = output_errors(model, hidden.ids, drawn, prompt=hidden.prompt, **how)
    encoded, tokens = encode(model, hidden.ids), len(hidden.ids)
    after = NextToken(first=hidden.first - hidden.prompt)
    seen: dict[str, list[Any]] = {name: [] for name in rules}
    for name, rule in rules.items():
        change = as_change(rule, hidden.prompt).bound_to(model.model, tokens)
        runs = changed_runs(model, encoded, change, range(seed, seed + shard["draws"]))
        dense = after.read(next(runs)[0])
        for outputs, _ in runs:
            answer = after.read(outputs)
            seen[name].append((target.between(dense, answer), hidden.found(answer)))
    for name, results in seen.items():
        scheme, _, keep = name.partition("|")
        predicted = _predicted_with_error(guess[name].kl, guess[name]) if name in guess else {}
        yield _row(scheme, f"{float(keep):.0%}", float(keep), results) | predicted


def _predicted_with_error(kl: float, error: OutputError) -> dict[str, float]:
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
        **{name: float(np.mean([entry[name] for _, entry in seen])) for name in seen[0][1]},
    }


def _planned_by(shard: Shard) -> tuple[str, str, int, tuple[float, ...], int, int]:
    names = ("model", "planned", "tokens")
    model, text, tokens = (shard[name] for name in names)
    return model, text, tokens, tuple(shard["kl"]), shard["probes"], shard["seed"]


@lru_cache(maxsize=1)
def _plans(
    model: str, text: str, tokens: int, kl: tuple[float, ...], probes: int, seed: int
) -> list[Plan]:
    """Plans by head, on a text that has no needle."""
    ids = passage(model, text, tokens)
    targets = [NextToken(distance) for distance in kl]
    calibration = calibration_of(load_once(model), [ids], targets[0], probes=probes, seed=seed)
    return make_plans(calibration, targets, per="head", complete=False)
