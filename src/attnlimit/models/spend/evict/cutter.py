"""When is a cache cut, and how? After a pass that made it grow, all layers together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.models.capture.interface import Call
from attnlimit.models.spend.evict.chances import systematic
from attnlimit.models.spend.evict.rule import Eviction
from attnlimit.models.spend.evict.turn import turn_of
from attnlimit.models.spend.evict.watched import Queries
from attnlimit.models.spend.outputs import predicts_tokens
from attnlimit.montecarlo.sampled import generator_of


class Cutter:
    """Watches the passes of a model and cuts the caches they leave."""

    def __init__(self, network: Any, rule: Eviction) -> None:
        if not predicts_tokens(network):
            raise BadInput(
                f"{type(network).__name__} does not generate, so it has no cache to cut; "
                "use Evict with a causal model."
            )
        self.rule = rule
        self.turn = turn_of(network)
        self.depth = int(network.config.num_hidden_layers)
        self._passed: list[dict[int, Any]] = [{} for _ in range(self.depth)]

    def watch(self, call: Call) -> None:
        """Remember what one layer's attention sees of one sequence."""
        from attnlimit.models.spend.evict.held import Passed

        size = call.key.shape[2]
        places = torch.arange(size - call.query.shape[2], size, device=call.query.device)
        found = self.rule.thinned(Queries(call.query[0], places), size)
        self._passed[call.layer][call.row] = Passed(
            found.query.detach().clone(),
            size - found.places,
            call.mask.positions,
            call.scale,
            call.softcap,
        )

    def after_pass(self, cache: Any, seed: int | Sequence[int]) -> None:
        """Cut the cache that a pass left, if it is time, and forget the pass."""
        passed, self._passed = self._passed, [{} for _ in range(self.depth)]
        if cache is None or self.rule.keep == 1 or not passed[0]:
            return
        held = held_by(cache, passed)
        if self._is_time(held[0]):
            drawn(cache, held, self.chances(held), self.rule, seed)
        else:
            for one in held:
                one.remember(self.rule)

    def seen(self, cache: Any) -> list[Any]:
        """What the last pass left in a cache, layer by layer."""
        return held_by(cache, self._passed)

    def chances(self, held: list[Any]) -> list[Tensor | None]:
        """Chance of every key to be kept, (layers, H_kv, m) for each sequence; None for padding."""
        return [self._chances(held, row) for row in range(held[0].rows)]

    def _is_time(self, held: Any) -> bool:
        """Whether a cache was never cut, or has grown enough since and all sequences with it."""
        if not held.was_cut:
            return True
        again = self.rule.again
        grown = again is not None and held.layer.fresh >= again
        return grown and len(held.passed) == held.rows

    def _chances(self, held: list[Any], row: int) -> Tensor | None:
        if row not in held[0].passed:  # all padding so far
            return None
        seen, length = [], held[0].length(row)
        for one in held:  # one layer's keys at a time
            watched = one.watched(row, self.turn, self.rule)
            weights = self.rule.importance(watched).double()
            seen.append((weights, watched.here, watched.positions))
        weights, here, places = (_stacked(part) for part in zip(*seen, strict=True))
        return self.rule.chances(weights, here, places, length)


def held_by(cache: Any, passed: list[dict[int, Any]]) -> list[Any]:
    """What each layer of a cache holds, after a pass that showed it."""
    from attnlimit.models.spend.evict.held import Held

    return [Held(layer, passed[i]) for i, layer in enumerate(cache.layers)]


def drawn(
    cache: Any,
    held: list[Any],
    chances: list[Tensor | None],
    rule: Eviction,
    seed: int | Sequence[int],
) -> None:
    """Draw which keys stay, and put the layers that hold them into the cache."""
    added: list[Tensor | None] = []
    for chance in chances:
        if chance is None:
            added.append(None)
            continue
        # Every sequence draws as it would alone.
        generator = generator_of(np.random.SeedSequence(seed))
        start = torch.rand(chance.shape[:2], generator=generator, dtype=torch.double)
        more = -torch.log(chance) if rule.weighted else torch.zeros_like(chance)
        added.append(more.masked_fill(~systematic(chance, start), -torch.inf))
    for i, one in enumerate(held):
        cache.layers[i] = one.cut([None if more is None else more[i] for more in added], rule)


def cache_bytes(cache: Any) -> tuple[int, int]:
    """Memory that a cache holds, and what all its keys and values would take."""
    held = dense = 0
    for layer in cache.layers:
        full = layer.keys.nbytes + layer.values.nbytes
        held += getattr(layer, "bytes", full)
        dense += getattr(layer, "dense_bytes", full)
    return held, dense


def _stacked(layers: Sequence[Tensor]) -> Tensor:
    """Tensors (H_kv, m) of all layers, slots that a layer does not have left empty."""
    size = max(one.shape[1] for one in layers)
    return torch.stack([torch.nn.functional.pad(one, (0, size - one.shape[1])) for one in layers])
