"""Rules that decide which keys a cache keeps.

A rule scores keys from what the cache holds when it is cut (`EvictionContext`); how many keys are
kept, which ones, and what is added to their scores follows from the base class. To add a rule,
extend `EvictionRule`, override `importance`, and decorate the class with `register_rule`: the
command line and plan files then find it by its name.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.eviction.context import EvictionContext, Queries, Rotation, rotation_of
from attnlimit.registry import Registry
from attnlimit.samplers.systematic import proportional, rounded_sizes


class StandIns(NamedTuple):
    """Keys that a head holds in place of those it dropped."""

    key: Tensor  # (n, d)
    value: Tensor  # (n, d_v)
    offset: Tensor  # (n,) added to their scores


class EvictionRule(ABC):
    """Keeps the keys that matter most. A new rule overrides `importance` alone.

    `keep` is the share of all tokens so far whose keys stay; a cache is cut after the first pass
    and whenever it has grown by `again` tokens, or never again if that is None.
    """

    keep: float
    again: int | None = None
    sinks: int = 0
    recent: int = 0
    weighted: ClassVar[bool] = False
    """Whether minus the logarithm of a kept key's probability is added to its scores."""
    moves_queries: ClassVar[bool] = False
    """Whether queries are rotated to later positions, which some models do not allow."""

    def __post_init__(self) -> None:
        share = checks.real_number(self.keep, "keep")
        if not 0 < share <= 1:
            raise BadInput(
                f"keep, the share of keys that stay, must be above 0 and at most 1, got {share:g}."
            )
        if self.again is not None:
            checks.count(self.again, "again")
        checks.count(self.sinks, "sinks", smallest=0)
        checks.count(self.recent, "recent", smallest=0)

    @property
    def name(self) -> str:
        """Short description for tables and pages."""
        return f"{type(self).__name__} {100 * self.keep:g} %"

    @abstractmethod
    def importance(self, context: EvictionContext) -> Tensor:
        """Nonnegative importance of each key, (H_kv, m); any number where a slot is empty."""

    def size(self, length: int) -> int:
        """Keys kept of `length`, for each head on average."""
        return max(1, int(self.keep * length))

    def recorded_queries(self) -> tuple[int, int | None]:
        """How many last queries the rule uses, and how many earlier ones; None for all."""
        return 0, 0

    def shares_size(self) -> bool:
        """Whether importance is compared across heads; otherwise every head keeps as many keys."""
        return False

    def stand_ins(self, key: Tensor, value: Tensor, offset: Tensor) -> StandIns | None:
        """What a head holds in place of the keys (n, d) that it drops; nothing by default."""
        return None

    def inclusion_probabilities(
        self, importance: Tensor, occupied: Tensor, positions: Tensor, length: int
    ) -> Tensor:
        """Probability of each key of a sequence to be kept; one for the first and last keys.

        Parameters
        ----------
        importance : (layers, H_kv, m) tensor
        occupied : (layers, H_kv, m) tensor of bool
            Slots that hold a key.
        positions : (layers, H_kv, m) tensor of int
            Position of each key.
        length : int
            Tokens of the sequence so far.
        """
        sure = occupied & ((positions < self.sinks) | (positions >= length - self.recent))
        weights = importance.double().masked_fill(~occupied, 0.0)
        sizes = torch.full(weights.shape[:2], self.size(length))
        if not self.weighted:
            ranked = weights.masked_fill(~occupied, -1.0).masked_fill(sure, torch.inf)
            order = torch.argsort(ranked, dim=-1, descending=True, stable=True)
            return ((torch.argsort(order, dim=-1) < sizes[..., None]) & occupied).double()
        floor = 1e-9 * weights.mean(-1, keepdim=True)  # every key keeps a chance to be drawn
        weights = weights.maximum(floor.clamp_min(1e-30)).masked_fill(~occupied, 0.0)
        if self.shares_size():
            joint = proportional(weights.reshape(1, -1), sizes.sum()[None], sure.reshape(1, -1))
            sizes = rounded_sizes(joint.reshape(weights.shape).sum(-1))
        return proportional(weights, sizes, sure)

    def select_queries(self, queries: Queries, length: int) -> Queries:
        """Return the queries to be recorded: the last, and earlier ones evenly spaced."""
        last, earlier = self.recorded_queries()
        recent = queries.positions >= length - last
        old = torch.nonzero(~recent & (queries.positions >= self.sinks)).ravel()
        if earlier is not None and len(old) > earlier:
            places = queries.positions[old].double()
            wanted = torch.linspace(float(places[0]), float(places[-1]), max(1, earlier))
            near = torch.searchsorted(places, wanted.double()).clamp_max(len(old) - 1).unique()
            old = old[near[:earlier]]
        return queries.pick(torch.cat([old, torch.nonzero(recent).ravel()]))


def rotation_for(network: Any, rule: EvictionRule) -> Rotation:
    """Return the rotation that a rule needs; one that does not move queries needs none."""
    return rotation_of(network) if rule.moves_queries else (lambda query, steps: query)


RULES: Registry[type[EvictionRule]] = Registry("attnlimit.eviction_rules")
"""Rules by the name that the command line and plan files know them by."""
Rule = TypeVar("Rule", bound=type[EvictionRule])


def register_rule(name: str) -> Callable[[Rule], Rule]:
    """Register a dataclass that extends `EvictionRule` under a name."""

    def register(rule: Rule) -> Rule:
        RULES[name] = rule
        return rule

    return register


def parse_rule(text: str) -> EvictionRule:
    """Return the rule that a text such as "0.25", "snapkv:0.25" or "tova:0.5,again=64" names."""
    name, _, rest = text.strip().rpartition(":")
    keep, *options = rest.split(",")
    content: dict[str, Any] = {"rule": name or "weighted", "keep": keep}
    content |= dict(option.partition("=")[::2] for option in options)
    try:
        return rule_from_dict({key: _value(value) for key, value in content.items()})
    except BadInput:
        raise
    except (TypeError, ValueError):
        raise BadInput(
            f"{text!r} is not an eviction rule; write the share of keys that stay, like 0.25, or "
            f"a rule and its share, like snapkv:0.25 ({', '.join(RULES.names())})."
        ) from None


def rule_to_dict(rule: EvictionRule) -> dict[str, Any]:
    """Return a rule as JSON holds it; the inverse of `rule_from_dict`."""
    name = next((name for name, kind in RULES.items() if type(rule) is kind), None)
    if name is None:
        raise BadInput(
            f"{rule!r} has no name to be written by; decorate its class with register_rule('name')."
        )
    defaults = {option.name: option.default for option in fields(rule)}  # type: ignore[arg-type]
    changed = {k: getattr(rule, k) for k, v in defaults.items() if getattr(rule, k) != v}
    return {"rule": name, "keep": rule.keep, **changed}


def rule_from_dict(content: Mapping[str, Any]) -> EvictionRule:
    """Return the rule that `rule_to_dict` wrote."""
    name = str(content.get("rule"))
    if name not in RULES:
        raise BadInput(
            f"There is no eviction rule {name!r}; choose from {', '.join(RULES.names())}."
        )
    kind: Any = RULES[name]
    known = [option.name for option in fields(kind)]
    if unknown := sorted(set(content) - {*known, "rule"}):
        raise BadInput(f"The eviction rule {name} has no {unknown[0]}; it has {', '.join(known)}.")
    rule: EvictionRule = kind(**{key: value for key, value in content.items() if key != "rule"})
    return rule


def _value(text: str) -> Any:
    try:
        return json.loads({"none": "null"}.get(text, text))
    except ValueError:
        return text


Sizes: TypeAlias = Literal["common", "equal"] | Array | tuple[tuple[float, ...], ...]
SHRINKAGE = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.6, 1.0)
"""Candidate shares of the head's mean in a key's squared weight."""
FEWEST = 8
"""Queries and keys on each side that a head needs to choose its shrinkage."""


@register_rule("weighted")
@dataclass(frozen=True)
class Evict(EvictionRule):
    """Drop keys by a weighted draw; kept keys stand for the dropped ones.

    A key is kept with probability p = min(1, c w) and -log p is added to its scores from then on,
    so that the softmax's sums stay unbiased. w_j^2 is the mean of P_j^2 |v_j - Gamma|^2 over the
    queries to come, taken to be recorded queries moved to later positions, and shrunk towards the
    head's mean by how badly earlier queries predicted the last ones (docs/theory/eviction.md).

    Parameters
    ----------
    keep : float
        Share of all tokens so far whose keys stay, in (0, 1].
    observe : int
        Queries that stand for those to come: the last ones, and as many earlier ones.
    again : int, optional
        Cut whenever the cache has grown by so many tokens; None cuts after the prompt only.
    ahead : int
        Number of later positions that queries are moved to.
    sinks, recent : int
        First and last keys that always stay.
    sizes : "common", "equal" or array (layers, KV heads)
        Keys that each head keeps: by one c for the whole model, as many as every other, or by one
        c with each head's squared errors multiplied by these numbers, such as
        `al.models.output_weights(model, text)`.

    Examples
    --------
    >>> import attnlimit as al
    >>> al.Evict(0.25).name
    'weighted 25 %'
    """

    keep: float = 0.25
    observe: int = 64
    again: int | None = 256
    ahead: int = 256
    sinks: int = 4
    recent: int = 16
    sizes: Sizes = "common"

    weighted = True
    moves_queries = True

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count(self.observe, "observe")
        checks.count(self.ahead, "ahead")
        if isinstance(self.sizes, str):
            checks.one_of(self.sizes, ("common", "equal"), "sizes")
        else:
            weights = checks.real_array(self.sizes, "sizes", ndim=2)
            if (weights <= 0).any():
                raise BadInput("sizes must be positive numbers by layer and KV head.")
            object.__setattr__(self, "sizes", tuple(map(tuple, weights.tolist())))

    @property
    def name(self) -> str:
        by = "" if isinstance(self.sizes, str) else " by output"
        return f"weighted {100 * self.keep:g} %{by}"

    def recorded_queries(self) -> tuple[int, int]:
        return self.observe, self.observe

    def shares_size(self) -> bool:
        return self.sizes != "equal"

    def inclusion_probabilities(
        self, importance: Tensor, occupied: Tensor, positions: Tensor, length: int
    ) -> Tensor:
        if not isinstance(self.sizes, str):
            weights = torch.tensor(self.sizes, dtype=torch.double, device=importance.device)
            if weights.shape != importance.shape[:2]:
                raise BadInput(
                    f"sizes are of {weights.shape[0]} layers of {weights.shape[1]} KV heads, the "
                    f"model has {importance.shape[0]} of {importance.shape[1]}."
                )
            importance = importance.double() * weights.sqrt()[..., None]
        return super().inclusion_probabilities(importance, occupied, positions, length)

    def importance(self, context: EvictionContext) -> Tensor:
        late = context.queries.positions >= context.length - self.observe
        parts = [context.queries.pick(torch.nonzero(some).ravel()) for some in (~late, late)]
        laws = [
            context.squared_errors(context.moved(part, context.length, self.ahead))
            for part in parts
            if len(part)
        ]
        share = _shrinkage(context, *parts)
        return _shrunk(torch.stack(laws).mean(0), context.occupied, share).sqrt()


@register_rule("streaming")
@dataclass(frozen=True)
class StreamingLLM(EvictionRule):
    """`sinks` first keys and the most recent ones, at their own positions (arXiv:2309.17453)."""

    keep: float = 0.25
    sinks: int = 4
    again: int | None = None

    def importance(self, context: EvictionContext) -> Tensor:
        place = context.positions.double()
        return place.masked_fill(context.positions < self.sinks, torch.inf)


@register_rule("snapkv")
@dataclass(frozen=True)
class SnapKV(EvictionRule):
    """Mean attention of the last `window` queries, averaged over neighbours (arXiv:2404.14469).

    The average is over `kernel` neighbours and the heads of a group; the window's keys stay.
    """

    keep: float = 0.25
    window: int = 64
    kernel: int = 5
    again: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count(self.window, "window")
        checks.count(self.kernel, "kernel")

    def recorded_queries(self) -> tuple[int, int]:
        return self.window, 0

    def importance(self, context: EvictionContext) -> Tensor:
        received = context.attention(context.queries, causal=True).mean(1)
        old = context.positions < context.length - self.window
        pooled = torch.nn.functional.avg_pool1d(
            received.masked_fill(~old, 0.0), self.kernel, stride=1, padding=self.kernel // 2
        )[..., : received.shape[-1]]
        return pooled.masked_fill(~old, torch.inf)


@register_rule("tova")
@dataclass(frozen=True)
class Tova(EvictionRule):
    """Attention of the last query, mean over all heads; the last key stays (arXiv:2401.06104)."""

    keep: float = 0.25
    again: int | None = None

    def recorded_queries(self) -> tuple[int, int]:
        return 1, 0

    def importance(self, context: EvictionContext) -> Tensor:
        received = context.attention(context.queries, causal=True).mean((0, 1))
        shared = received.expand(context.occupied.shape)
        return shared.masked_fill(context.positions >= context.length - 1, torch.inf)


@register_rule("expected")
@dataclass(frozen=True)
class ExpectedAttention(EvictionRule):
    """Mean of exp(score) over Gaussian queries to come, times the value's norm (arXiv:2510.00636).

    Queries are moved back to position zero, and their mean and covariance rotated by the average
    rotation over the next `ahead` positions.
    """

    keep: float = 0.25
    ahead: int = 512
    sinks: int = 4
    again: int | None = None

    moves_queries = True

    def recorded_queries(self) -> tuple[int, None]:
        return 0, None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count(self.ahead, "ahead")

    def importance(self, context: EvictionContext) -> Tensor:
        queries = context.queries
        still = context.rotate(queries.query, -queries.positions)
        mean = still.mean(1, keepdim=True)
        spread = still - mean
        cov = spread.transpose(1, 2) @ spread / still.shape[1]
        size, device = context.key.shape[-1], context.key.device
        unit = torch.eye(size, dtype=context.key.dtype, device=device)[:, None]
        steps = context.length + torch.arange(self.ahead, device=device)
        rotation = context.rotate(unit.expand(size, self.ahead, size), steps).mean(1)  # of rows
        mean, cov = mean @ rotation, rotation.T @ cov @ rotation
        heads, groups = len(mean), len(mean) // len(context.key)
        key = context.key.repeat_interleave(groups, dim=0)
        scores = context.scale * (key @ mean.transpose(1, 2))[..., 0]
        scores = scores + context.scale**2 / 2 * ((key @ cov) * key).sum(-1)
        scores = scores + context.offset.repeat_interleave(groups, dim=0)
        first = context.positions < self.sinks
        weights = torch.softmax(
            scores.masked_fill(first.repeat_interleave(groups, dim=0), -torch.inf), -1
        )
        shared = weights.view(heads // groups, groups, -1).mean(1)
        return (shared * context.value.norm(dim=-1)).masked_fill(first, torch.inf)


def _shrunk(squared: Tensor, occupied: Tensor, share: Tensor) -> Tensor:
    """Mix squared weights with their mean over the keys of the head."""
    squared = squared.masked_fill(~occupied, 0.0)
    mean = squared.sum(-1, keepdim=True) / occupied.sum(-1, keepdim=True).clamp_min(1)
    return (1 - share[:, None]) * squared + share[:, None] * mean


def _shrinkage(context: EvictionContext, earlier: Queries, last: Queries) -> Tensor:
    """Share of the mean with which earlier queries would have predicted the last ones best.

    Probabilities p = c w with a given sum leave the variance (sum w)(sum W / w) to queries of
    squared weights W, whatever the sum: the share that makes this least, for each head.
    """
    start = context.length - len(last)
    old = context.occupied & (context.positions < start) & (context.positions >= 0)
    shares = torch.tensor(SHRINKAGE, dtype=torch.double)
    if min(len(earlier), len(last)) < FEWEST or int(old.sum(-1).min()) < FEWEST:
        return shares[len(shares) // 2].expand(len(old))
    before = replace(context, offset=context.offset.masked_fill(~old, -torch.inf))
    predicted = before.squared_errors(before.moved(earlier, start, len(last))).double()
    actual = context.squared_errors(last, causal=True).double().masked_fill(~old, 0.0)
    costs = []
    for share in shares:
        weight = _shrunk(predicted, old, share.expand(len(old))).sqrt().masked_fill(~old, 0.0)
        costs.append(weight.sum(-1) * (actual / weight.masked_fill(~old, 1.0)).sum(-1))
    return shares[torch.stack(costs).argmin(0)]
