"""Targets: what of a model's output counts, how far it may move, and how changes are measured.

A target measures a small change of the output to second order, and gives random scalars whose
gradients measure it: with g the gradient of a probe at the attention outputs o, an error e of o
changes the target by `scale` E_g <g, e>^2 (docs/theory/output.md).

A new kind of output is one class that extends `Target` and is decorated with `register_target`:
`plan(target=...)`, the command line, pages and plan files then find it by its name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.constants import COSINE_LIMIT, KL_LIMIT, KL_LIMIT_UNCERTAINTY, THIRD_ORDER
from attnlimit.errors import BadInput
from attnlimit.models.loading import predicts_tokens
from attnlimit.models.passes import Outputs, cosine_loss, divergence, mean_kl
from attnlimit.registry import Registry

ROUNDING = float(torch.finfo(torch.float32).eps)
"""Relative rounding of a number, and so of a log probability of one nat."""
STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)


def third_order(value: Any, limit: float) -> Any:
    """Error that higher orders may leave: a share of the value that grows as the output's change.

    The change is of the order of the root of the distance; `THIRD_ORDER` is fitted.
    """
    return THIRD_ORDER * value * (value / limit) ** 0.5


class Target(ABC):
    """A distance between the outputs of the dense and of the changed model, and a bound on it.

    `distance` is the largest value allowed, None where a target only measures.
    """

    name: ClassVar[str]
    """Keyword of `plan`, option of the command line, and name in plan files."""
    measure: ClassVar[str]
    """Attribute of results that holds the distance."""
    label: ClassVar[str]
    unit: ClassVar[str] = ""
    default: ClassVar[float]
    """Value that a user would give, such as a cosine of 0.999."""
    least: ClassVar[float] = 0.0
    """Smallest distance that rounding leaves visible."""
    distance: float | None = None

    @classmethod
    @abstractmethod
    def to_distance(cls, value: float) -> float:
        """Distance that a user's value allows; BadInput for an impossible value."""

    @classmethod
    @abstractmethod
    def to_value(cls, distance: float) -> float:
        """User's value of a distance; the inverse of `to_distance`."""

    @classmethod
    def fits(cls, network: Any) -> str:
        """Why a model has no such output, or nothing."""
        return ""

    @abstractmethod
    def read(self, outputs: Outputs) -> Tensor:
        """Take what counts from the outputs."""

    @abstractmethod
    def probes(self, read: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Random scalars of what was read, to be differentiated."""

    @abstractmethod
    def scale(self, read: Tensor) -> float:
        """Return the factor of E <g, e>^2."""

    @abstractmethod
    def between(self, read: Tensor, other: Tensor) -> float:
        """Distance of a changed output from the dense one."""

    @abstractmethod
    def limit(self, read: Tensor) -> float:
        """Distance beyond which second order is not trusted."""

    first: int = 0
    """First position of what is a mean over positions."""
    check_runs: ClassVar[int] = 3
    """Runs of a random change that a prediction is checked by."""

    def from_position(self, first: int) -> Target:
        """Return the target over positions from `first` on, if it is a mean over positions."""
        return self

    def position_error(self, read: Tensor, other: Tensor) -> float:
        """Standard error of `between` over positions, zero if it is no mean over them."""
        return 0.0

    def describe(self, distance: float) -> str:
        """Bound in words, such as "KL 0.01 nats"."""
        return f"{self.label} {distance:.3g}{self.unit}"

    def around(self) -> list[float]:
        """Distances from a twentieth of the default to ten times it, in readable steps."""
        usual = self.to_distance(self.default)
        grid = [step * usual * 10**power for power in range(-3, 2) for step in STEPS]
        kept = {float(f"{d:.6g}") for d in grid if usual / 20.001 <= d <= 10.001 * usual}
        return sorted(kept | ({self.distance} if self.distance is not None else set()))


TARGETS: Registry[type[Target]] = Registry("attnlimit.targets")
"""Targets by name."""
Registered = TypeVar("Registered", bound=type[Target])


def register_target(target: Registered) -> Registered:
    """Register `target`, a class that extends `Target`, under its name."""
    TARGETS[target.name] = target
    return target


@register_target
@dataclass(frozen=True)
class NextToken(Target):
    """Mean KL divergence of the next token, dense from changed, in nats; from a position on."""

    distance: float | None = None
    first: int = 0

    name = "kl"
    measure = "kl"
    label = "KL"
    unit = " nats"
    default = 0.01
    check_runs = 1
    least = ROUNDING

    @classmethod
    def to_distance(cls, value: float) -> float:
        if value <= 0:
            raise BadInput(f"kl must be above 0, got {value:g}: only dense attention has no error.")
        return value

    @classmethod
    def to_value(cls, distance: float) -> float:
        return distance

    @classmethod
    def fits(cls, network: Any) -> str:
        if predicts_tokens(network):
            return ""
        return (
            f"{type(network).__name__} does not predict a next token, so it has no KL; give "
            "cosine=0.999 (--cosine 0.999) for its embedding, or load a causal model."
        )

    def from_position(self, first: int) -> NextToken:
        return replace(self, first=first)

    def read(self, outputs: Outputs) -> Tensor:
        """Log probabilities, (positions, vocabulary)."""
        assert outputs.logits is not None
        return torch.log_softmax(outputs.logits[self.first :], -1)

    def probes(self, read: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Log probabilities of all tokens, weighted by root probability and a random sign.

        Their gradients have Fisher's covariance, as those of tokens drawn from the model have,
        with less scatter: no token is rare.
        """
        for _ in range(count):
            signs = torch.randint(0, 2, read.shape, generator=generator, dtype=torch.int8)
            weights = (0.5 * read.detach()).exp_()
            weights *= signs.mul_(2).sub_(1).to(read.device)
            yield read.flatten() @ weights.flatten()

    def scale(self, read: Tensor) -> float:
        """One half, for the mean over positions."""
        return 0.5 / len(read)

    def between(self, read: Tensor, other: Tensor) -> float:
        return mean_kl(read, other)

    def position_error(self, read: Tensor, other: Tensor) -> float:
        each = divergence(read, other)
        return float(each.std() / len(each) ** 0.5)

    def limit(self, read: Tensor) -> float:
        """`KL_LIMIT`, and less where the model is sure of its tokens.

        There a small divergence already is a large change of the logits.
        """
        uncertainty = 1 - float(read.detach().exp().square().sum(-1).mean())
        return KL_LIMIT * min(1.0, uncertainty / KL_LIMIT_UNCERTAINTY)


@register_target
@dataclass(frozen=True)
class Perplexity(NextToken):
    """Factor by which perplexity may grow, of a model whose probabilities are true: exp(KL)."""

    name = "perplexity"
    default = 1.01

    @classmethod
    def to_distance(cls, value: float) -> float:
        if value <= 1:
            raise BadInput(
                "perplexity must be the factor by which it may grow, above 1 like 1.01, got "
                f"{value:g}."
            )
        return float(np.log(value))

    @classmethod
    def to_value(cls, distance: float) -> float:
        return float(np.exp(distance))


@register_target
@dataclass(frozen=True)
class EmbeddingAngle(Target):
    """1 - cosine of the mean-pooled embedding."""

    distance: float | None = None

    name = "cosine"
    measure = "cosine_loss"
    label = "1 - cosine"
    least = ROUNDING
    default = 0.999

    @classmethod
    def to_distance(cls, value: float) -> float:
        if not 0 < value < 1:
            raise BadInput(f"cosine must lie between 0 and 1, like 0.999, got {value:g}.")
        return 1 - value

    @classmethod
    def to_value(cls, distance: float) -> float:
        return 1 - distance

    def read(self, outputs: Outputs) -> Tensor:
        """The embedding, (d,)."""
        return outputs.embedding

    def probes(self, read: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Random directions orthogonal to the embedding."""
        axis = read.detach()
        for _ in range(count):
            normal = torch.randn(read.shape, generator=generator, dtype=read.dtype)
            yield (normal - (normal @ axis) / axis.square().sum() * axis) @ read

    def scale(self, read: Tensor) -> float:
        """1 - cos is |orthogonal change|^2 / (2 |embedding|^2)."""
        return 0.5 / float(read.detach().square().sum())

    def between(self, read: Tensor, other: Tensor) -> float:
        return cosine_loss(read, other)

    def limit(self, read: Tensor) -> float:
        return COSINE_LIMIT


def choose_target(network: Any, output: str | Target | None) -> Target:
    """Return the target that `output` names or is; by default next tokens or the embedding."""
    if isinstance(output, Target):
        target: Target = output
    else:
        name = default_target(network) if output is None else output
        if not isinstance(name, str) or name not in TARGETS:
            names = ", ".join(f'"{known}"' for known in TARGETS.names())
            raise BadInput(f"output must be {names} or a Target, got {output!r}.")
        target = TARGETS[name]()
    reason = target.fits(network)
    if reason:
        raise BadInput(reason)
    return target


def default_target(network: Any) -> str:
    """Name of the target for a kind of model."""
    return "kl" if predicts_tokens(network) else "cosine"


def given_target(
    values: Sequence[tuple[str, float | None]], target: Target | None
) -> Target | None:
    """Return the one target that was given, None if there is none; refuse several.

    `values` are names of registered targets with the user's values.
    """
    given = [(name, value) for name, value in values if value is not None]
    if len(given) + (target is not None) > 1:
        raise BadInput(
            "Give one target, kl=0.01, perplexity=1.01 or cosine=0.999; got "
            f"{len(given) + (target is not None)}."
        )
    if target is not None:
        if not isinstance(target, Target) or target.distance is None:
            raise BadInput(f"target must be a Target with a distance, got {target!r}.")
        return _visible(target)
    return target_of(*given[0]) if given else None


def target_of(name: str, value: float) -> Target:
    """Return a registered target at a user's value."""
    if name not in TARGETS:
        raise BadInput(f"There is no target {name!r}; choose from {', '.join(TARGETS.names())}.")
    kind: Any = TARGETS[name]
    return _visible(kind(distance=kind.to_distance(checks.real_number(value, name))))


def _visible(target: Target) -> Target:
    """Refuse a target below what rounding loses."""
    assert target.distance is not None
    if target.distance < target.least:
        raise BadInput(
            f"{target.name} asks for at most {target.distance:.2g}{target.unit}, and rounding in "
            f"float32 already loses about {target.least:.1g}; allow a larger error."
        )
    return target
