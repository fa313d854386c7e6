"""What has a thinned model read, and how wrong is it by now? Known while it runs.

The output of a head over drawn keys has, to first order, the squared error

    sum over kept keys of (1 - p_j) w_j^2 |v_j - Gamma|^2,      w_j the weights that it used,

which needs nothing but the keys that were read. A plan for KL knows how much the next token feels
a squared error of each head, which turns their sum into nats (docs/theory/output.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.result import Result


@dataclass(eq=False)
class Step:
    """One layer in one pass of the model, all heads and queries of the batch together."""

    tokens: int = 0  # queries of a head
    queries: int = 0  # of all heads
    read: int = 0  # keys read
    visible: int = 0  # keys that dense attention reads
    bytes: float = 0.0  # of keys, values and proxies that are read
    visible_bytes: float = 0.0  # of all keys and values that are seen
    relative: float = 0.0  # squared errors over squared outputs, of all heads and queries
    unknown: bool = False  # whether some head's error cannot be seen from what it read
    nats: float = 0.0
    dense: int = 0  # tokens that went back to dense attention


@dataclass(eq=False)
class Spent(Result):
    """What a thinned model has read so far, and how wrong that makes it by first order.

    Errors are those of keys that are kept by chance and weighted. What a sampler leaves out for
    good cannot be seen from what it keeps: with such samplers the errors are NaN.
    """

    sensitivity: Array | None = None  # (layers, heads) nats a token for a squared error
    steps: dict[tuple[int, int], Step] = field(default_factory=dict)  # by pass and layer
    squares: dict[tuple[int, int], float] = field(default_factory=dict)  # by layer and head
    shared: dict[tuple[int, int], float] = field(default_factory=dict)  # by layer and KV head
    cache_bytes: int = 0  # held by the cache that was cut last
    dense_bytes: int = 0  # that all its keys and values would take

    @property
    def queries(self) -> int:
        """Queries of all heads."""
        return sum(step.queries for step in self.steps.values())

    @property
    def read(self) -> int:
        """Keys read."""
        return sum(step.read for step in self.steps.values())

    @property
    def visible(self) -> int:
        """Keys that dense attention reads."""
        return sum(step.visible for step in self.steps.values())

    @property
    def mean_keys(self) -> float:
        """Keys read by a query of a head, on average."""
        return self.read / max(1, self.queries)

    @property
    def mean_visible(self) -> float:
        """Keys that a query of a head sees, on average."""
        return self.visible / max(1, self.queries)

    @property
    def mean_bytes(self) -> float:
        """Bytes of keys, values and what stands in for them, read for a token by all layers."""
        return self._each("bytes")

    @property
    def visible_bytes(self) -> float:
        """Bytes that dense attention reads for a token."""
        return self._each("visible_bytes")

    def _each(self, name: str) -> float:
        """A sum over all layers, for each token."""
        layers = len({layer for _, layer in self.steps})
        tokens = sum(step.tokens for step in self.steps.values())
        return layers * sum(getattr(s, name) for s in self.steps.values()) / max(1, tokens)

    @property
    def relative_error(self) -> float:
        """Root mean square of |error| / |output| over heads and queries, estimated."""
        if any(step.unknown for step in self.steps.values()):
            return float("nan")
        whole = sum(step.relative for step in self.steps.values())
        return float(np.sqrt(whole / max(1, self.queries)))

    @property
    def kl(self) -> float:
        """KL from the dense model in nats a token, estimated; for plans that were made for KL."""
        if self.sensitivity is None:
            raise BadInput(
                "What errors of heads do to the output is known from a plan: spend one that "
                "plan_output(model, texts, kl=...) made by keys kept by chance."
            )
        return self._each("nats")

    @property
    def dense_share(self) -> float:
        """Share of layers and tokens that went back to dense attention."""
        steps = self.steps.values()
        return sum(s.dense for s in steps) / max(1, sum(s.tokens for s in steps))

    def mean_squares(self) -> Array:
        """Mean squared error of each head's output, (layers, heads), estimated."""
        return self._by_place(self.squares)

    def mean_shared(self) -> Array:
        """Keys of each key-value head that a token's query heads read together, (layers, G)."""
        return self._by_place(self.shared)

    def _by_place(self, sums: dict[tuple[int, int], float]) -> Array:
        """Means over tokens, of sums by layer and head."""
        found = np.zeros(tuple(np.array(sorted(sums)).max(0) + 1))
        for place, value in sums.items():
            found[place] = value
        tokens = sum(step.tokens for step in self.steps.values()) / len(found)
        return np.asarray(found / max(1.0, tokens))

    def to_frame(self) -> pd.DataFrame:
        """One row for each pass and layer: keys read, relative error, nats if they are known."""
        rows = []
        for (number, layer), step in sorted(self.steps.items()):
            error = float("nan") if step.unknown else np.sqrt(step.relative / step.queries)
            row = {
                "pass": number,
                "layer": layer,
                "tokens": step.tokens,
                "mean_keys": step.read / step.queries,
                "mean_visible": step.visible / step.queries,
                "bytes": step.bytes / step.tokens,
                "relative_error": error,
                "dense": step.dense / step.tokens,
            }
            rows.append(row if self.sensitivity is None else row | {"kl": step.nats / step.tokens})
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        said = f"{self.mean_keys:.1f} of {self.mean_visible:.1f} keys read by each query"
        if self.steps and not np.isnan(self.relative_error):
            said += f"; heads err by {100 * self.relative_error:.2g} %"
        if self.steps and self.sensitivity is not None:
            said += f", about {self.kl:.2g} nats a token"
        said += f"; {100 * self.dense_share:.2g} % dense" if self.dense_share else ""
        if not self.dense_bytes:
            return said
        return f"{said}; cache of {self.cache_bytes / 1e6:.2f} of {self.dense_bytes / 1e6:.2f} MB"


def squared_errors(weights: Tensor, left: Tensor, values: Tensor, outputs: Tensor) -> Tensor:
    """First-order squared error (H, R) of outputs (H, R, d_v), from the weights that were used.

    `left` (H, R, N) is the chance that a key would not have been kept, `values` are (H, N, d_v).
    """
    spread = left * weights.square()
    around = values.square().sum(-1)[:, None] * spread  # sum of (v - o)^2 by its three parts
    pull = ((spread @ values) * outputs).sum(-1)
    size = outputs.square().sum(-1)
    return (around.sum(-1) - 2 * pull + size * spread.sum(-1)).clamp_min(0.0)


def nats_of(squares: Tensor, sensitivity: Array | None, layer: int) -> Tensor:
    """Nats that each query of a layer adds, (R,); zero where it is not known."""
    if sensitivity is None:
        return torch.zeros(squares.shape[1])
    return torch.from_numpy(sensitivity[layer]).to(squares.dtype) @ squares
