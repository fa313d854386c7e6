"""Joint plans: keys read, bits of each layer and keys evicted, bought together for one target.

Errors of reading, rounding and eviction have independent origins, so their predicted losses add.
Reading has one threshold for the model, eviction one share, and each layer its own bits, which
minimise bytes + multiplier * loss. All combinations of a threshold, a share and a multiplier are
compared; the cheapest whose loss is within the target is the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.eviction.rules import Evict, EvictionRule
from attnlimit.planning.allocation import SamplerGrid, SizeErrors, constrained, interpolate
from attnlimit.planning.calibration import CalibrationSet, Candidates, TextTerms
from attnlimit.planning.cost import CacheUse, CostModel, Shape
from attnlimit.planning.precision import Quantize
from attnlimit.planning.target import Target
from attnlimit.samplers import Sampler

MINIMISE = ("bytes_read", "bytes_stored", "milliseconds")
SHARES = (0.8, 0.65, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1)
"""Shares of a prompt's keys that may stay."""
MULTIPLIERS = np.geomspace(1e2, 1e12, 161)
"""Bytes of a layer's row that a nat is worth."""
Sized = list[list[tuple[SizeErrors, int]]]
"""For each sampler, every text's errors and the place of its size."""
Pair = tuple[int | None, int | None]
"""Which precision the keys and the values of a layer have, or None."""


@dataclass(frozen=True, eq=False)
class JointChoice:
    """Settings of all knobs, with the loss of each along the probes of every text."""

    sampler: Sampler | None
    keys: Array  # (L, H) read by a query
    evict: EvictionRule | None
    quantize: tuple[Quantize | None, ...] | None
    losses: dict[str, Array]  # by knob, (T, K)
    by_head: dict[str, Array]  # by knob, (L, H)

    @property
    def rounding(self) -> Array:
        """Loss by the rounding of keys and of values in each layer, (2, L)."""
        empty = np.zeros(self.keys.shape)
        parts = [self.by_head.get(name, empty) for name in ("key bits", "value bits")]
        return np.array([part.sum(1) for part in parts])

    @property
    def by_probe(self) -> Array:
        """Loss of every text along each probe, (T, K)."""
        return np.asarray(sum(self.losses.values()))


def cache_precisions(value_width: int) -> tuple[Quantize, Quantize]:
    """Precisions in 8 and in 4 bits that a cache of fast decoding holds."""
    kind = "row" if value_width % 32 else "block"
    return Quantize("row8", f"{kind}8"), Quantize("row4", f"{kind}4")


def eviction_rules(calibration: CalibrationSet, decode: int) -> list[EvictionRule | None]:
    """Rules to choose from; no eviction alone for models whose cache cannot be cut."""
    prompt = min(calibration.tokens) - decode
    every = [Evict(share, again=None) for share in SHARES]
    rules = [rule for rule in every if rule.keep * prompt >= 2 * (rule.sinks + rule.recent)]
    if not rules:
        return [None]
    try:
        calibration.check_rule(rules[0])
    except BadInput:
        return [None]
    return [None, *rules]


@dataclass(frozen=True, eq=False)
class JointErrors:
    """Predicted losses of every setting of each knob, on every text."""

    minimise: str
    decode: int
    margin: float | None
    machine: CostModel
    shape: Shape
    texts: list[TextTerms]
    rules: list[EvictionRule | None]
    precisions: list[tuple[Quantize | None, ...]]  # by layer, in 8 and 4 bits or as they are fixed
    fixed: bool  # whether precisions were given
    samplers: list[Sampler | None]
    reading: Array  # (T, S, K)
    keys: Array  # (S, L, H) read by a query
    sized: Sized
    tokens: float

    @property
    def visible(self) -> float:
        """Keys that a decoded query sees."""
        return self.tokens - (self.decode - 1) / 2

    def choose(self, target: Target) -> JointChoice:
        """Return the cheapest settings within a target."""
        rounding = np.stack([text.rounding() for text in self.texts])  # (T, P, 2, L, G, K)
        layers, rows = _bits(rounding, self.precisions, self.shape, self.fixed)
        of_bits = np.stack([_loss_of(rounding, chosen) for chosen in layers], axis=1)  # (T, M, K)
        assert target.distance is not None
        best, place, least = (np.inf, np.inf), (0, 0, 0), np.inf
        for e, rule in enumerate(self.rules):
            cut, kept = self._eviction(rule)
            mean = (self.reading + cut[:, None]).mean(-1)[:, :, None] + of_bits.mean(-1)[:, None]
            loss = constrained(mean, self.margin)  # (S, M)
            least = np.fmin(least, loss.min())
            held = kept * (self.tokens - self.decode) + self.decode / 2
            cost = self._costs(held, rows, rule is not None)
            cost[~(loss <= target.distance)] = np.inf
            low = float(cost.min())
            if low < np.inf:
                near = np.argwhere(cost <= low * (1 + 1e-9))
                losses = loss[tuple(near.T)]
                s, m = near[int(losses.argmin())].tolist()
                if (low, float(losses.min())) < best:
                    best, place = (low, float(losses.min())), (e, s, m)
        if best[0] == np.inf:
            raise BadInput(
                f"The precision or eviction given costs {least:.3g}{target.unit} alone, and the "
                f"target is {target.describe(target.distance)}: take more bits, keep more keys, or "
                "allow a larger loss."
            )
        return self._settings(rounding, layers[place[2]], *place[:2])

    def _eviction(self, rule: EvictionRule | None) -> tuple[Array, Array]:
        """Loss (T, K) of a rule, and the share of keys that each layer keeps (L,)."""
        if rule is None:
            return np.zeros_like(self.reading[:, 0]), np.ones(self.keys.shape[1])
        each = [text.eviction_of(rule) for text in self.texts]
        kept = np.mean([share for _, share in each], axis=0)
        return np.stack([loss for loss, _ in each]), np.asarray(kept)

    def _costs(self, held: Array, rows: Array, evicts: bool) -> Array:
        """What is minimised, (S, M)."""
        cost = np.empty((len(self.samplers), len(rows)))
        for s, sampler in enumerate(self.samplers):
            use = CacheUse(self.shape, held, self.keys[s].sum(-1), rows, sampler, evicts)
            if self.minimise == "milliseconds":
                cost[s] = use.milliseconds(self.machine)  # of every row of choices
            else:
                cost[s] = getattr(use, self.minimise)
        return cost

    def _settings(self, rounding: Array, chosen: tuple[Pair, ...], e: int, s: int) -> JointChoice:
        """Losses of each knob, by text and by head."""
        rule, depth, groups = self.rules[e], len(chosen), self.shape.key_heads
        group = self.shape.heads // groups
        losses = {"keys read": self.reading[:, s]}
        shares = [size.shares()[index] for size, index in self.sized[s]]
        by_head = {"keys read": np.asarray(np.mean(shares, axis=0))}
        for part, name in enumerate(("key bits", "value bits")):
            table = np.zeros((depth, groups))
            for layer, pair in enumerate(chosen):
                if pair[part] is not None:
                    table[layer] = rounding[:, pair[part], part, layer].mean((0, 2))
            if table.any():
                losses[name] = _loss_of(rounding, chosen, (part,))
                by_head[name] = np.repeat(table, group, axis=1) / group
        if rule is not None:
            losses["eviction"] = self._eviction(rule)[0]
            tables = [text.eviction_by_head(rule) for text in self.texts]
            by_head["eviction"] = np.repeat(np.mean(tables, axis=0), group, axis=1) / group
        held = tuple(self._precision(layer, pair) for layer, pair in enumerate(chosen))
        quantize = held if any(held) else None
        return JointChoice(self.samplers[s], self.keys[s], rule, quantize, losses, by_head)

    def _precision(self, layer: int, pair: Pair) -> Quantize | None:
        keys, values = pair
        if keys is None or values is None:
            return None
        if self.fixed:
            return self.precisions[0][layer]
        return mixed(self.precisions[keys][layer], self.precisions[values][layer])


def joint_errors(
    calibration: CalibrationSet,
    *,
    minimise: str,
    decode: int,
    families: Sequence[str | Sampler],
    evict: EvictionRule | None,
    quantize: tuple[Quantize | None, ...] | None,
    machine: CostModel,
    margin: float | None,
    progress: Callable[[int, int], None] | None,
) -> JointErrors:
    """Predict the loss of every setting; `evict` and `quantize` fix their knobs."""
    depth, heads = calibration.shape
    groups, width = (calibration.architecture[name] for name in ("kv_heads", "head_dim"))
    grids = [SamplerGrid.of(one, min(calibration.tokens)) for one in families]
    tables: list[Any] = [
        [[sampler] * heads] * depth for grid in grids for sampler in grid.samplers(grid.coarse)
    ]
    rules: list[EvictionRule | None] = [evict]
    if evict is None:
        rules = eviction_rules(calibration, decode)
    both: list[tuple[Quantize | None, ...]] = [(one,) * depth for one in cache_precisions(width)]
    precisions = both if quantize is None else [quantize]
    chosen = [rule for rule in rules if rule is not None]
    texts = calibration.every_text(Candidates(tables, decode, precisions, chosen), progress)
    shape = Shape(heads, groups, width, width, calibration.number)
    tokens = float(np.mean(calibration.tokens))
    return JointErrors(
        minimise, decode, margin, machine, shape, texts, rules, precisions, quantize is not None,
        *_reading(grids, texts), tokens,
    )  # fmt: skip


def _reading(
    grids: Sequence[SamplerGrid], texts: Sequence[TextTerms]
) -> tuple[list[Sampler | None], Array, Array, Sized]:
    """Samplers of all sizes, at last none, with the loss (T, S, K) and keys (S, L, H) of each."""
    samplers: list[Sampler | None] = []
    losses: list[list[Array]] = [[] for _ in texts]
    keys: list[list[Array]] = [[] for _ in texts]
    sized: Sized = []
    first = 0
    for number, grid in enumerate(grids):
        last = first + len(grid.coarse)
        every = [interpolate(text.part(first, last), grid) for text in texts]
        count = len(grid.fine) + (number + 1 == len(grids))  # dense attention once
        samplers += grid.samplers(grid.fine) + [None] * (count - len(grid.fine))
        for text, size in enumerate(every):
            losses[text].append(size.common()[:count])
            keys[text].append(size.keys[:count])
        sized += [[(size, index) for size in every] for index in range(count)]
        first = last
    reading = np.stack([np.concatenate(parts) for parts in losses])
    return samplers, reading, np.mean([np.concatenate(parts) for parts in keys], axis=0), sized


def _bits(
    rounding: Array, precisions: Sequence[Sequence[Quantize | None]], shape: Shape, fixed: bool
) -> tuple[list[tuple[Pair, ...]], Array]:
    """Choices of a precision for the keys and values of each layer, and bytes of their rows (M, L).

    A choice is for one multiplier of the loss; without rounding all numbers are the model's own.
    """
    depth = rounding.shape[3]
    if fixed:
        pairs: list[Pair] = [(None, None) if one is None else (0, 0) for one in precisions[0]]
        rows = [row_bytes(one, shape) for one in precisions[0]]
        return [tuple(pairs)], np.array([rows])
    options: list[Pair] = [(None, None), (0, 0), (0, 1), (1, 0), (1, 1)]
    mean = rounding.mean((0, -1)).sum(-1)  # (P, 2, L)
    loss = np.array([
        sum((mean[p, part] for part, p in enumerate(pair) if p is not None), np.zeros(depth))
        for pair in options
    ])  # fmt: skip
    size = np.array([
        shape.row_bytes if pair[0] is None or pair[1] is None
        else row_bytes(mixed(precisions[pair[0]][0], precisions[pair[1]][0]), shape)
        for pair in options
    ])  # fmt: skip
    chosen = {tuple(np.argmin(size[:, None] + m * loss, axis=0).tolist()) for m in MULTIPLIERS}
    ordered = sorted(chosen | {(0,) * depth})
    layers = [tuple(options[o] for o in choice) for choice in ordered]
    return layers, size[np.array(ordered)]


def _loss_of(rounding: Array, chosen: Sequence[Pair], parts: Sequence[int] = (0, 1)) -> Array:
    """Loss (T, K) of a choice, by its keys, its values or both."""
    total = np.zeros((len(rounding), rounding.shape[-1]))
    for layer, pair in enumerate(chosen):
        for part in parts:
            if pair[part] is not None:
                total += rounding[:, pair[part], part, layer].sum(1)
    return total


def mixed(keys: Quantize | None, values: Quantize | None) -> Quantize:
    """Return the keys' precision of one and the values' of another."""
    assert keys is not None
    assert values is not None
    return Quantize(keys.keys, values.values)


def row_bytes(precision: Quantize | None, shape: Shape) -> float:
    """Bytes of a key and its value."""
    if precision is None:
        return shape.row_bytes
    return precision.token_bytes(shape.width, shape.value_width, shape.number)
