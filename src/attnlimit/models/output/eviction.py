"""What will dropping keys after a prompt do to what comes? Predicted before anything is dropped.

One draw serves all later queries, so the errors that a dropped key makes at different queries add
up before they are squared: along a probe g, key j of a KV head is worth
A_j = sum over queries and heads of P_j <g, v_j - Gamma>, and a cut moves the probe by
sum_j (kept_j / p_j - 1) A_j, whose variance over the draw is exact (docs/theory/eviction.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.capture.dense import call_scores, grouped
from attnlimit.models.capture.encode import encode, unwrap
from attnlimit.models.capture.interface import Call
from attnlimit.models.output.probes import probe
from attnlimit.models.output.target import NextToken, choose_target, third_order
from attnlimit.models.spend.evict.chances import systematic
from attnlimit.models.spend.evict.rule import Eviction
from attnlimit.models.spend.evict.turn import turn_of
from attnlimit.models.spend.evict.watched import Queries, Watched
from attnlimit.result import Result

STARTS = 32
"""Draws that the variance is averaged over, evenly spaced: all that systematic sampling has."""

CUT = 2.0
"""How much coarser the prediction of a cut is, whose keys are gone for all queries at once."""


@dataclass(frozen=True, eq=False)
class EvictionError(Result):
    """Predicted KL divergence of the next token after a cut, mean over draws."""

    rule: str
    prompt: int  # tokens before the cut
    after: int  # tokens after it that were asked
    kl: float
    stderr: float  # over the probes; NaN from one
    numerical_error: (
        float  # what first order in a key's weight, and second in the output, leave out
    )
    trusted: bool  # whether second order holds, and what is dropped was drawn
    contributions: Array  # (layers, KV heads), adds up to kl
    kept: Array  # (layers, KV heads) keys

    def headline(self) -> str:
        """What is predicted."""
        error = f" +- {np.hypot(np.nan_to_num(self.stderr), self.numerical_error):.1g}"
        doubt = "" if self.trusted else "; not to be trusted, measure it with try_evict"
        return (
            f"{self.rule}: KL {self.kl:.3g}{error} nats predicted over {self.after} tokens after a "
            f"prompt of {self.prompt}, {self.kept.mean():.1f} keys kept by a head{doubt}"
        )

    def to_frame(self) -> pd.DataFrame:
        """One row for each KV head."""
        layers, heads = self.kept.shape
        return pd.DataFrame(
            {
                "layer": np.repeat(np.arange(layers), heads),
                "kv_head": np.tile(np.arange(heads), layers),
                "kept": self.kept.ravel(),
                "contribution": self.contributions.ravel(),
                "share": self.contributions.ravel() / (self.kl or 1.0),
            }
        )


def eviction_errors(
    model: Any,
    text: Any,
    rules: Mapping[str, Eviction],
    *,
    prompt: int | None = None,
    first: int | None = None,
    probes: int = 4,
    seed: int = 0,
) -> dict[str, EvictionError]:
    """Predict the KL after a cut, without cutting; see `eviction_error`.

    All rules share one pass and the same probes. The KL is of the tokens from `first` on, by
    default all after the prompt.
    """
    network, _ = unwrap(model)
    if not isinstance(rules, Mapping) or not rules:
        raise BadInput("Give rules by name, like {'quarter': al.models.Evict(0.25)}; at least one.")
    for rule in rules.values():
        if not rule.weighted:
            raise BadInput(
                f"{rule.name} draws nothing, so there is no variance to predict; run it with "
                "try_evict, one pass gives its error."
            )
    choose_target(network, "kl")
    encoded = encode(model, text)
    tokens = encoded.inputs["input_ids"].shape[1]
    size = tokens // 2 if prompt is None else checks.count(prompt, "prompt", smallest=2)
    if not 2 <= size < tokens:
        raise BadInput(f"The text has {tokens} tokens; the prompt must be shorter, got {size}.")
    asked = size if first is None else checks.count(first, "first", smallest=size)
    if asked >= tokens:
        raise BadInput(f"The text has {tokens} tokens; first must be below that, got {asked}.")
    effects: dict[int, list[Tensor]] = {}
    weights: dict[str, dict[int, Tensor]] = {name: {} for name in rules}
    turn = turn_of(network)

    def reduce(call: Call, gradients: Tensor, group: slice) -> None:
        effects.setdefault(call.layer, []).append(_effects(call, gradients, size))
        if group.start == 0:
            for name, rule in rules.items():
                weights[name][call.layer] = rule.importance(_prompt(call, size, rule, turn))

    target = NextToken(asked)
    times = checks.count(probes, "probes")
    probed = probe(network, encoded, target, times, checks.count(seed, "seed", smallest=0), reduce)
    layers = sorted(effects)
    along = torch.stack([torch.cat(effects[layer]) for layer in layers], dim=1)  # (K, L, H, m)
    results = {}
    for name, rule in rules.items():
        importance = torch.stack([weights[name][layer] for layer in layers])
        places = torch.arange(size).expand(importance.shape)
        chance = rule.chances(importance, places >= 0, places, size)
        variance = probed.scale * _variance(along, chance)
        by_probe = variance.sum((1, 2)).numpy()
        kl = float(by_probe.mean())
        results[name] = EvictionError(
            rule=name,
            prompt=size,
            after=tokens - asked,
            kl=kl,
            stderr=float(by_probe.std(ddof=1) / np.sqrt(times)) if times > 1 else float("nan"),
            numerical_error=CUT * third_order(kl, probed.limit),
            trusted=kl <= probed.limit and _draws(chance),
            contributions=variance.mean(0).numpy(),
            kept=chance.sum(-1).numpy(),
        )
    return results


def eviction_error(
    model: Any,
    text: Any,
    rule: Eviction,
    *,
    prompt: int | None = None,
    probes: int = 4,
    seed: int = 0,
) -> EvictionError:
    """Predict what cutting the cache after a prompt does to the tokens that follow it.

    Parameters
    ----------
    model : LoadedModel or transformers model
        A causal one.
    text : str or token ids
        The prompt and what comes after it.
    rule : Evict
    prompt : int, optional
        Tokens before the cut. By default half of the text, so that of a prompt alone its second
        half stands in for what is to come.
    probes : int
        Backward passes; the standard error is over them.
    """
    found = eviction_errors(model, text, {rule.name: rule}, prompt=prompt, probes=probes, seed=seed)
    return found[rule.name]


def _prompt(call: Call, size: int, rule: Eviction, turn: Any) -> Watched:
    """What the cache would know after the prompt."""
    key, value = call.key[0, :, :size], call.value[0, :, :size]
    return Watched(
        queries=rule.thinned(Queries(call.query[0, :, :size], torch.arange(size)), size),
        key=key,
        value=value,
        added=key.new_zeros(key.shape[:2]),
        positions=torch.arange(size).expand(key.shape[:2]),
        length=size,
        scale=call.scale,
        softcap=call.softcap,
        turn=turn,
    )


def _effects(call: Call, gradients: Tensor, size: int) -> Tensor:
    """What each key of the prompt is worth to the queries after it, (K, H_kv, size)."""
    probes, heads, length = gradients.shape[:3]
    total = gradients.new_zeros(probes, heads, size)
    for start in range(size, length, 64):
        rows = slice(start, min(start + 64, length))
        block = call.up_to(rows)
        values = grouped(block.value[0], heads)
        weights = torch.softmax(call_scores(block, rows), -1)
        along = gradients[:, :, rows] @ values.transpose(1, 2)  # (K, H, R, N)
        centre = (weights * along).sum(-1, keepdim=True)
        total += (weights[..., :size] * (along[..., :size] - centre)).sum(2)
    return total.view(probes, call.key.shape[1], -1, size).sum(2)


def _draws(chance: Tensor) -> bool:
    """Whether keys are drawn at all, or all stay; not so where the sure ones fill the cache."""
    return bool(((chance > 0) & (chance < 1)).any() or (chance == 1).all())


def _variance(along: Tensor, chance: Tensor) -> Tensor:
    """Variance of what a draw does along each probe, (K, layers, H_kv), over all its starts."""
    total = along.new_zeros(along.shape[:3], dtype=torch.double)
    worth = along.double() / chance.clamp_min(torch.finfo(torch.double).tiny)
    whole = along.double().sum(-1)
    for number in range(STARTS):
        start = torch.full(chance.shape[:2], (number + 0.5) / STARTS, dtype=torch.double)
        moved = (worth * systematic(chance, start)).sum(-1) - whole
        total += moved.square()
    return total / STARTS
