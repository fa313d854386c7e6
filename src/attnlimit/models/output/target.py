"""What of a model's output counts? Its next tokens, its embedding's angle, or a function of it.

A target says how a small change of the outputs is measured, to second order, and gives the random
scalars whose gradients measure it: with g the gradient of a probe at the attention outputs o, an
error e of o changes the target by `scale` E_g <g, e>^2 (docs/theory/output.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.models.spend.outputs import Outputs, predicts_tokens

KL_LIMIT = 0.1
"""Nats up to which the second order is trusted, on texts as they are."""
DOUBT = 0.75
"""What is left to other tokens there, 1 - sum p^2, on average over positions."""
ANGLE_LIMIT = 0.0045
"""1 - cosine up to which it is, an angle of five degrees; at 0.005 one was a quarter low."""
THIRD_ORDER = 0.15
"""What is left out may be, as a share of the prediction, at the limit of trust."""


def third_order(value: Any, limit: float) -> Any:
    """What a prediction of second order may miss: a share that grows as the output's change does.

    The change is of the order of the root of the distance. The size is a fit to measurements.
    """
    return THIRD_ORDER * value * (value / limit) ** 0.5


class Target(ABC):
    """A distance between the outputs of the dense model and of a thinned one."""

    name: str

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
    def distance(self, read: Tensor, other: Tensor) -> float:
        """Distance of what another model gives from what was read."""

    @abstractmethod
    def limit(self, read: Tensor) -> float:
        """Distance beyond which the second order is not to be trusted."""


@dataclass(frozen=True)
class NextToken(Target):
    """Mean KL divergence of the next token, dense from thinned, in nats; from `first` on."""

    first: int = 0
    name = "kl"

    def read(self, outputs: Outputs) -> Tensor:
        """Logarithms of the chances, (N - first, vocabulary)."""
        assert outputs.logits is not None
        return torch.log_softmax(outputs.logits[self.first :], -1)

    def probes(self, read: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Log chances of all tokens, each by the root of its chance and a random sign.

        Their gradients are Fisher's, as those of tokens drawn from the model are, with less
        scatter: no token is rare.
        """
        for _ in range(count):
            signs = torch.randint(0, 2, read.shape, generator=generator, dtype=torch.int8)
            weights = (0.5 * read.detach()).exp_()
            weights *= signs.mul_(2).sub_(1).to(read.device)
            yield read.flatten() @ weights.flatten()

    def scale(self, read: Tensor) -> float:
        """One half, for the mean over positions."""
        return 0.5 / len(read)

    def distance(self, read: Tensor, other: Tensor) -> float:
        """KL divergence, mean over positions."""
        return max(0.0, float((read.exp() * (read - other)).sum(-1).mean()))

    def limit(self, read: Tensor) -> float:
        """A tenth of a nat, and less where the model is sure of its tokens.

        There a small divergence already is a large change of the logits.
        """
        doubt = 1 - float(read.detach().exp().square().sum(-1).mean())
        return KL_LIMIT * min(1.0, doubt / DOUBT)


class EmbeddingAngle(Target):
    """1 - cosine of the mean-pooled embedding."""

    name = "cosine_loss"

    def read(self, outputs: Outputs) -> Tensor:
        """The embedding, (d,)."""
        return outputs.embedding

    def probes(self, read: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Random directions across the embedding."""
        for _ in range(count):
            yield _across(_normal(read, generator), read.detach()) @ read

    def scale(self, read: Tensor) -> float:
        """1 - cos is |change across|^2 / (2 |embedding|^2)."""
        return 0.5 / float(read.detach().square().sum())

    def distance(self, read: Tensor, other: Tensor) -> float:
        """1 - cosine."""
        return max(0.0, 1 - float(torch.cosine_similarity(read.double(), other.double(), dim=0)))

    def limit(self, read: Tensor) -> float:
        """An angle of five degrees."""
        return ANGLE_LIMIT


@dataclass(frozen=True)
class Function(Target):
    """Squared error of any differentiable function of the outputs."""

    function: Callable[[Outputs], Tensor]
    name = "squared_error"

    def read(self, outputs: Outputs) -> Tensor:
        """What the function gives, as one vector."""
        found = self.function(outputs)
        if not isinstance(found, Tensor) or not found.is_floating_point():
            raise BadInput(
                f"The output function must return a tensor of real numbers, got {type(found)}."
            )
        return found.reshape(-1)

    def probes(self, read: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Random directions."""
        for _ in range(count):
            yield _normal(read, generator) @ read

    def scale(self, read: Tensor) -> float:
        """One."""
        return 1.0

    def distance(self, read: Tensor, other: Tensor) -> float:
        """The square."""
        return float((other - read).square().sum())

    def limit(self, read: Tensor) -> float:
        """A fiftieth of its own square, as of an embedding's."""
        return 0.02 * float(read.detach().square().sum())


Output: TypeAlias = str | Target | Callable[[Outputs], Tensor] | None


def choose_target(network: Any, output: Output) -> Target:
    """Return the target that `output` names or is; by default what the model is for."""
    causal = predicts_tokens(network)
    if isinstance(output, Target):
        return output
    if callable(output):
        return Function(output)
    chosen = output if output is not None else ("kl" if causal else "cosine")
    if chosen == "kl":
        if not causal:
            raise BadInput(
                f"{type(network).__name__} does not predict a next token, so it has no KL; "
                "ask for its embedding (plan_output: cosine=0.999; output_error: output='cosine'; "
                "plan: --cosine 0.999), or load a causal model."
            )
        return NextToken()
    if chosen == "cosine":
        return EmbeddingAngle()
    raise BadInput(f'output must be "kl", "cosine" or a function of the outputs, got {output!r}.')


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype)


def _across(vector: Tensor, axis: Tensor) -> Tensor:
    """The part of a vector orthogonal to an axis."""
    return vector - (vector @ axis) / axis.square().sum() * axis
