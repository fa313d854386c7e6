"""Predicted loss of threshold sampling in contexts longer than a text.

A query sees the first keys and the recent ones once, however long the text is. What grows with the
text is the rest: more keys of the same law of scores and values, but for what a score loses with
distance. So at a context of n keys each far key of a query stands for m = (n - near) / far keys of
its kind, the farther ones weaker (docs/theory/threshold.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.attention import call_products, grouped
from attnlimit.models.passes import encode, unwrap
from attnlimit.models.sampled import shape_of
from attnlimit.planning.probes import ProbedLayer, probe
from attnlimit.planning.target import NextToken
from attnlimit.theory.one_query.first_order import key_variances

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
                [
                    np.average(np.interp(np.log(places), logs, entry), weights=width)
                    for entry in by_c.T
                ]
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

    def reduce(layer: ProbedLayer) -> None:
        call, gradients, group = layer.call, layer.gradients, layer.group
        scores = torch.cat(
            [call_products(call, slice(i, i + 1)).exact() for i in places.tolist()], 1
        )
        values = grouped(call.value[0], len(scores)).transpose(1, 2)
        along = gradients[:, :, places] @ values
        place = torch.arange(scores.shape[-1])
        distance = places[:, None] - place
        near = (place < SINKS) | (distance < window)
        fall = decay(scores, near, distance)
        for t, n in enumerate(lengths):
            read, variance = extended(scores, along, near, n, levels, fall)
            keys[:, t] += read * (group.start == 0)
            error[:, t, group] += variance

    probe(network, encoded, NextToken(), probes, seed, reduce)
    layers, heads = shape_of(network)
    return Growth(levels, lengths, 0.5 * error / len(places), keys / len(places) / (layers * heads))


def decay(scores: Tensor, near: Tensor, distance: Tensor) -> Tensor:
    """Power of the distance by which e^score falls over the far keys, (H,), at most zero.

    Least squares of scores (H, R, N) on log distance, with a mean for each query.
    """
    far = (scores[0] > -torch.inf) & ~near
    logs = distance.clamp_min(1).log().to(scores.dtype)
    count = far.sum(-1, keepdim=True).clamp_min(1)
    spread = torch.where(far, logs - torch.where(far, logs, 0).sum(-1, keepdim=True) / count, 0)
    slope = (spread * torch.where(far, scores, 0)).sum((1, 2)) / spread.square().sum()
    return slope.nan_to_num(0.0).clamp_max(0.0)


def extended(
    scores: Tensor, along: Tensor, near: Tensor, n: float, c: Array, fall: Tensor
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
    fall : (H,) tensor
        Power of the distance by which e^score falls; zero makes far keys plain copies.
    """
    seen = scores[0] > -torch.inf
    once, far = seen & near, seen & ~near
    raw = torch.exp(scores - scores.amax(-1, keepdim=True))
    kinds = [(once.to(scores.dtype), raw)] + [
        (far * times[:, None], raw * torch.exp(fall[:, None] * log)[..., None])
        for times, log in _copies(once.sum(-1), far.sum(-1), n)
    ]
    whole = torch.stack([(count * mass).sum(-1, keepdim=True) for count, mass in kinds]).sum(0)
    laws = [(count, mass / whole) for count, mass in kinds]
    mean = torch.stack(
        [(count * weights * along).sum(-1, keepdim=True) for count, weights in laws]
    ).sum(0)
    square = (along - mean).square().double()
    keys, variance = np.zeros(len(c)), np.zeros((len(c), len(along)))
    for count, weights in laws:
        for row, entry in enumerate(c):
            odds = torch.where(weights < 1 / entry, 1 / (entry * weights.clamp_min(1e-30)) - 1, 0.0)
            noise = key_variances(weights, odds, 1.0)
            keys[row] += float((count * (entry * weights).clamp_max(1)).double().sum())
            variance[row] += (square * (count * noise)).sum((1, 2, 3)).numpy()
    return keys, variance


def _copies(near: Tensor, far: Tensor, n: float) -> Iterator[tuple[Tensor, Tensor]]:
    """Far keys of a longer context in blocks that double: how often each comes, and how far away.

    Both (R,): a number, and the logarithm of the distance over that of the keys themselves.
    """
    size = far.clamp_min(1).double()
    left = (n - near).clamp_min(0).double()
    begin = torch.zeros_like(size)
    while (left > 0).any():
        block = torch.minimum(left, begin.maximum(size))
        log = torch.log((near + begin + block / 2) / (near + size / 2)).clamp_min(0.0)
        yield (block / size).float(), log.float()
        left, begin = left - block, begin + block
