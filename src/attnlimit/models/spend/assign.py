"""Which sampler does each head of a model use? One for all, one a head, or those of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.samplers import Sampler
from attnlimit.samplers.base import check_sampler


@runtime_checkable
class HasSamplers(Protocol):
    """A plan: anything that says which sampler each head uses."""

    def samplers(self) -> Mapping[tuple[int, int], Sampler]:
        """Return samplers by (layer, head); heads that are not named see all their keys."""


@runtime_checkable
class HasSensitivity(Protocol):
    """A plan that knows how much the output feels each head: nats a token for a squared error."""

    sensitivity: Array | None  # (layers, heads)


Samplers: TypeAlias = Sampler | Mapping[tuple[int, int], Sampler] | HasSamplers
"""One sampler for every head, samplers by (layer, head), or a plan."""

Table: TypeAlias = list[list[Sampler | None]]
"""The sampler of every head by layer, None where a head sees all its keys."""


def sampler_table(network: Any, samplers: Samplers) -> Table:
    """Return the sampler of every head of `network`, checked against its shape."""
    layers, heads = shape_of(network)
    if isinstance(samplers, Sampler):
        return [[samplers] * heads for _ in range(layers)]
    chosen = samplers.samplers() if isinstance(samplers, HasSamplers) else samplers
    if not isinstance(chosen, Mapping):
        check_sampler(chosen)
    table: Table = [[None] * heads for _ in range(layers)]
    for place, sampler in chosen.items():
        layer, head = _place(place)
        if not (0 <= layer < layers and 0 <= head < heads):
            raise BadInput(
                f"There is a sampler for layer {layer}, head {head}, but this model has {layers} "
                f"layers of {heads} heads; make the plan with this model."
            )
        table[layer][head] = check_sampler(sampler)
    return table


Place = TypeVar("Place")


def grouped_by_sampler(
    assigned: Iterable[tuple[Place, Sampler | None]],
) -> list[tuple[Sampler, list[Place]]]:
    """Gather the places that share a sampler; those without one are left out."""
    groups: dict[Any, tuple[Sampler, list[Place]]] = {}
    for place, sampler in assigned:
        if sampler is not None:
            # A sampler of a user's own may not be hashable.
            key = sampler if type(sampler).__hash__ is not None else id(sampler)
            groups.setdefault(key, (sampler, []))[1].append(place)
    return list(groups.values())


def shape_of(network: Any) -> tuple[int, int]:
    """Layers and heads of a model."""
    return int(network.config.num_hidden_layers), int(network.config.num_attention_heads)


def describe(samplers: Samplers) -> str:
    """Return a few words for tables and pages."""
    if isinstance(samplers, Sampler):
        return samplers.name
    return "plan" if isinstance(samplers, HasSamplers) else "one sampler a head"


def _place(place: Any) -> tuple[int, int]:
    if (
        isinstance(place, tuple)
        and len(place) == 2
        and all(isinstance(i, int) and not isinstance(i, bool) for i in place)
    ):
        return place
    raise BadInput(f"Samplers are named by (layer, head), two whole numbers, got {place!r}.")
