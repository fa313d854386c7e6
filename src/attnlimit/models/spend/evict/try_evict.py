"""What does dropping keys after a prompt do to what comes? Run it, beside the full cache."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models.capture.dense import attend_dense
from attnlimit.models.capture.encode import encode, unwrap
from attnlimit.models.capture.interface import Call, attention_as
from attnlimit.models.spend.evict.cutter import Cutter, cache_bytes, drawn
from attnlimit.models.spend.evict.rule import Eviction
from attnlimit.result import Result
from attnlimit.skewed import skewness


@dataclass(frozen=True)
class EvictionTrial(Result):
    """A model whose cache was cut after a prompt, against the full one; means over draws."""

    rule: str
    prompt: int  # tokens before the cut
    after: int  # tokens after it
    kl: float  # mean KL(full || cut) of the next token after the cut, in nats
    stderr: float  # over draws; NaN where nothing is drawn or from one draw
    skewness: float  # of that mean: of its draws, over the root of their number
    top1: float  # share of tokens whose most likely successor is the same
    perplexity: float
    dense_perplexity: float
    cache_bytes: int  # right after the cut
    dense_bytes: int

    def to_frame(self) -> pd.DataFrame:
        """One row."""
        return pd.DataFrame([self.__dict__])

    def headline(self) -> str:
        """What was kept, and what it did."""
        error = "" if np.isnan(self.stderr) else f" +- {self.stderr:.1g}"
        return (
            f"{self.rule}: KL {self.kl:.3g}{error} nats over {self.after} tokens after a prompt of "
            f"{self.prompt}, same top token at {100 * self.top1:.1f} %; cache of "
            f"{self.cache_bytes / 1e6:.2f} of {self.dense_bytes / 1e6:.2f} MB"
        )


def try_evict(
    model: Any,
    text: Any,
    rules: Mapping[str, Eviction],
    *,
    prompt: int,
    repeats: int = 3,
    seed: int = 0,
) -> dict[str, EvictionTrial]:
    """Cut the cache after the first `prompt` tokens of a text by each rule, and read on.

    The prompt is read once, with full attention, for all rules and draws.

    Parameters
    ----------
    model : LoadedModel or transformers model
    text : str or token ids
    rules : mapping of str to Evict or another rule
    repeats : int
        Draws of each rule that draws.
    """
    network, _ = unwrap(model)
    times, root = checks.count(repeats, "repeats"), checks.count(seed, "seed", smallest=0)
    ids = encode(model, text).inputs["input_ids"]
    size = checks.count(prompt, "prompt")
    if not size < ids.shape[1] - 1:
        raise BadInput(
            f"The text has {ids.shape[1]} tokens; the prompt must leave two, got {size}."
        )
    runs = read_on(network, ids, rules, size, repeats=times, seed=root)
    _, full, _ = next(runs)
    found: dict[str, list[list[float]]] = {name: [] for name in rules}
    for name, logs, held in runs:
        found[name].append([*_distances(full, logs, ids[0, size:]), *held])
    after = ids.shape[1] - size
    return {name: _trial(name, size, after, np.array(rows)) for name, rows in found.items()}


@torch.no_grad()
def read_on(
    network: Any,
    ids: Tensor,
    rules: Mapping[str, Eviction],
    prompt: int,
    *,
    repeats: int,
    seed: int,
) -> Iterator[tuple[str, Tensor, tuple[int, int]]]:
    """Read a text's prompt once, and the rest after every cut of its cache.

    Yields names with the logarithms of the chances of the next token, (tokens, vocabulary), and
    the bytes held and those of the full cache: first of the full cache, whose name is empty, then
    of each rule, `repeats` times if it draws.
    """
    cutters = {name: Cutter(network, rule) for name, rule in rules.items()}
    cache = _read(network, ids[:, :prompt], cutters)
    rest = ids[:, prompt:]
    yield "", _logs(network, rest, _copied(cache)), cache_bytes(cache)
    for name, cutter in cutters.items():
        held = cutter.seen(cache)
        chances = cutter.chances(held)
        for draw in range(repeats if cutter.rule.weighted else 1):
            cut = _copied(cache)
            drawn(cut, held, chances, cutter.rule, (seed, draw))
            sizes = cache_bytes(cut)
            yield name, _logs(network, rest, cut), sizes


def _read(network: Any, ids: Tensor, cutters: Mapping[str, Cutter]) -> Any:
    """Read the prompt with full attention, watched by all; return its cache."""

    def attention(call: Call) -> Tensor:
        for cutter in cutters.values():
            cutter.watch(call)
        return attend_dense(call)

    with attention_as(network, attention):
        return network(ids, use_cache=True, logits_to_keep=1).past_key_values


def _copied(cache: Any) -> Any:
    """A cache that can be read on from, and the old one stays; tensors are shared."""
    new = copy.copy(cache)
    new.layers = [copy.copy(layer) for layer in cache.layers]
    return new


def _logs(network: Any, ids: Tensor, cache: Any) -> Tensor:
    """Logarithms of the chances of the next token, (tokens, vocabulary)."""
    with attention_as(network, attend_dense):
        logits = network(ids, past_key_values=cache, use_cache=True).logits[0]
    return torch.log_softmax(logits, -1)


def _distances(full: Tensor, cut: Tensor, ids: Tensor) -> list[float]:
    """KL, share of equal top tokens, and the two perplexities."""
    loss = [-logs[:-1].gather(1, ids[1:, None]).mean() for logs in (cut, full)]
    return [
        max(0.0, float((full.exp() * (full - cut)).sum(-1).mean())),
        float((full.argmax(-1) == cut.argmax(-1)).float().mean()),
        *(float(one.exp()) for one in loss),
    ]


def _trial(name: str, prompt: int, after: int, found: np.ndarray) -> EvictionTrial:
    kl, top1, perplexity, dense, held, whole = found.mean(0)
    root = np.sqrt(len(found))
    spread = found[:, 0].std(ddof=1) / root if len(found) > 1 else np.nan
    return EvictionTrial(
        rule=name,
        prompt=prompt,
        after=after,
        kl=float(kl),
        stderr=float(spread),
        skewness=float(skewness(found[:, 0]) / root),
        top1=float(top1),
        perplexity=float(perplexity),
        dense_perplexity=float(dense),
        cache_bytes=int(held),
        dense_bytes=int(whole),
    )
