"""What does a longer text cost? Each head's own law of keys, the far ones many times over.

A query sees the first keys and the recent ones once, however long the text is. What grows with the
text is the rest: more keys of the same law of scores and values. So at a context of n keys each
far key of a query stands for m = (n - near) / far keys of its kind (docs/theory/threshold.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.capture.dense import call_scores, grouped
from attnlimit.models.capture.encode import encode, unwrap
from attnlimit.models.capture.interface import Call
from attnlimit.models.output.probes import probe
from attnlimit.models.output.target import NextToken
from attnlimit.models.spend.assign import shape_of

SINKS = 4
QUERIES = 32
"""Queries of a text whose law is extended, evenly spaced over its third quarter and a half."""


@dataclass(frozen=True, eq=False)
class Growth:
    """Error and keys of a query by threshold and context; a text's error is their mean."""

    c: Array  # (C,)
    context: Array  # (T,) keys that a query sees
    error: Array  # (C, T, K) KL of the next token that a query adds, in nats, by probe
    keys: Array  # (C, T) read by a query of a head

    def over_text(self, tokens: int) -> Array:
        """KL of a text of `tokens` tokens, mean over its queries, (C, K)."""
        places = np.unique(np.geomspace(1, tokens, 400).round())
        width = np.diff(places, prepend=0.0)
        logs = np.log(self.context)
        return np.array(
            [
                [np.average(np.interp(np.log(places), logs, one), weights=width) for one in by_c.T]
                for by_c in self.error
            ]
        )


def output_growth(
    model: Any,
    text: Any,
    thresholds: Sequence[float],
    context: Sequence[int],
    *,
    probes: int = 4,
    recent: int | None = None,
    seed: int = 0,
) -> Growth:
    """Predict what thresholds cost in texts longer than `text`, from the law of its own heads.

    Parameters
    ----------
    model : LoadedModel or transformers model
        A causal one.
    text : str, token ids, or a mapping of input tensors
    thresholds : sequence of float
    context : sequence of int
        Keys that a query sees.
    recent : int, optional
        Keys before a query that are near it; by default a quarter of the text.
    """
    network, _ = unwrap(model)
    encoded = encode(model, text)
    tokens = len(encoded.positions)
    window = tokens // 4 if recent is None else checks.count(recent, "recent")
    if tokens < 2 * (window + SINKS):
        raise BadInput(
            f"A text of {tokens} tokens has no far keys beyond the {window} recent ones; give a "
            "longer one, or a smaller recent."
        )
    lengths = np.array([checks.count(n, "context") for n in context], dtype=float)
    levels = np.array([checks.positive(c, "thresholds") for c in thresholds])
    # Late enough to have far keys, early enough for what comes after to feel their errors.
    places = torch.linspace(tokens // 2, 7 * tokens // 8, QUERIES).long().unique()
    shape = (len(levels), len(lengths))
    error, keys = np.zeros((*shape, probes)), np.zeros(shape)

    def reduce(call: Call, gradients: Tensor, group: slice) -> None:
        scores = torch.cat([call_scores(call, slice(i, i + 1)) for i in places.tolist()], 1)
        values = grouped(call.value[0], len(scores)).transpose(1, 2)
        along = gradients[:, :, places] @ values
        place = torch.arange(scores.shape[-1])
        near = (place < SINKS) | (places[:, None] - place < window)
        for t, n in enumerate(lengths):
            read, variance = extended(scores, along, near, n, levels)
            keys[:, t] += read * (group.start == 0)
            error[:, t, group] += variance

    probe(network, encoded, NextToken(), probes, seed, reduce)
    layers, heads = shape_of(network)
    return Growth(levels, lengths, 0.5 * error / len(places), keys / len(places) / (layers * heads))


def extended(
    scores: Tensor, along: Tensor, near: Tensor, n: float, c: Array
) -> tuple[Array, Array]:
    """Keys read (C,) and variance (C, K), sums over heads and queries, in a context of `n` keys.

    Parameters
    ----------
    scores : (H, R, N) tensor
        -inf where a key is not visible.
    along : (K, H, R, N) tensor
        <g, v_j> of every key, whatever is added to all keys of a query.
    near : (R, N) tensor of bool
        Keys that come once.
    """
    seen = scores[0] > -torch.inf
    once, far = seen & near, seen & ~near
    times = (n - once.sum(-1)).clamp_min(0) / far.sum(-1).clamp_min(1)
    count = torch.where(far, times[:, None], once.to(scores.dtype))
    raw = torch.exp(scores - scores.amax(-1, keepdim=True))
    weights = raw / (count * raw).sum(-1, keepdim=True)
    mean = (count * weights * along).sum(-1, keepdim=True)
    square = (count * (along - mean).square()).double()
    keys, variance = [], []
    for one in c:
        below = weights < 1 / one
        noise = torch.where(below, weights / one - weights.square(), 0.0)
        keys.append(float((count * (one * weights).clamp_max(1)).double().sum()))
        variance.append((square * noise).sum((1, 2, 3)).numpy())
    return np.array(keys), np.array(variance)
