"""Base of the changes of a model's attention: predicted from probes, and run in the model.

A change is one class that extends `Change` with two methods.

- `accumulator` returns an `Accumulator`, which is given every layer of the dense model with the
  gradients of the output at its attention (`ProbedLayer`: queries, keys, values, attention P and
  gradients, in blocks of queries) and returns `ErrorTerms`: for each head and probe g, the variance
  and the mean of <g, error>, summed over queries.
- `active` makes a model run with the change inside a `with` block.

`output_error`, `evaluate` and the planner take any change; predicted errors of several changes add.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.models.attention import Call
from attnlimit.models.sampled import AttentionStats
from attnlimit.planning.probes import ProbedLayer


@dataclass(frozen=True, eq=False)
class ErrorTerms:
    """Variance and mean of <g, error>, summed over queries, by layer, head and probe.

    Heads are query heads (H) or key-value heads, whichever the change acts on.
    """

    variance: Array  # (L, H, K)
    bias: Array  # (L, H, K)
    keys: Array  # (L, H) keys read by a query, or kept in the cache
    visible: float  # keys of dense attention, of the same kind
    rough: Array | None = None  # (L, H, K) variance of queries beyond first order and exact laws
    factor: float = 1.0  # of the error that higher orders leave
    bound: float = float("nan")  # least variance of independent sampling with as many keys
    doubt: str = ""  # why second order cannot hold, whatever the size
    parts: dict[str, Array] = field(default_factory=dict)  # of the variance, (L, H) each

    def by_query_head(self, heads: int) -> ErrorTerms:
        """Return the same terms with those of key-value heads spread over their query heads."""
        groups = heads // self.variance.shape[1]

        def spread(values: Array) -> Array:
            return np.repeat(values, groups, axis=1) / groups

        rough = None if self.rough is None else spread(self.rough)
        keys = np.repeat(self.keys, groups, axis=1)
        parts = {name: spread(part) for name, part in self.parts.items()}
        variance, bias = spread(self.variance), spread(self.bias)
        return replace(self, variance=variance, bias=bias, keys=keys, rough=rough, parts=parts)


class Accumulator(ABC):
    """Adds up the effect of a change, layer after layer and probe after probe."""

    @abstractmethod
    def add(self, layer: ProbedLayer) -> None:
        """Add one layer along a group of probes."""

    @abstractmethod
    def terms(self, index: int = 0) -> ErrorTerms:
        """Return the sums of one of the changes, when every layer was added."""


class Change(ABC):
    """A change of a model's attention whose effect on the output can be predicted and run."""

    prompt: int | None = None
    """Tokens read before the change, in a pass of their own; None if the text is read at once."""
    start: int | None = None
    """First position of the text whose queries are changed, where a change has one."""
    biased: bool = False
    """Whether errors have a mean that `expected_attention` gives."""
    draws: bool = True
    """Whether the change is random, so that runs differ."""
    check_runs: int = 1
    """Runs that a prediction is checked by before it is called trusted."""
    shares_passes: ClassVar[bool] = False
    """Whether the effects of several changes of the class are added up together."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Short description for tables."""

    @property
    def first(self) -> int:
        """First position of the text that is changed."""
        return self.prompt or self.start or 0

    @abstractmethod
    def bound_to(self, network: Any, tokens: int) -> Change:
        """Return the change for a model and a text's length; refuse what cannot be predicted."""

    @abstractmethod
    def accumulator(
        self, network: Any, tokens: int, probes: int, others: Sequence[Any] = ()
    ) -> Accumulator:
        """Return what adds up the effects of this change and `others` of its class."""

    @abstractmethod
    def active(self, model: Any, seed: int) -> AbstractContextManager[AttentionStats]:
        """Run the model with the change inside a `with` block."""

    def expected_attention(self, call: Call) -> Tensor | None:
        """Outputs of a layer with expected errors, if the change is biased; otherwise None."""
        return None
