"""Keys and bytes read by sampled attention, and a running estimate of its error.

The output of a head over drawn keys has, to first order, the squared error

    sum over kept keys of (1 - p_j) w_j^2 |v_j - Gamma|^2,      w_j the weights that were used,

which needs the keys that were read and no others. A plan for KL holds the sensitivity of the next
token to a squared error of each head, which turns their sum into nats (docs/theory/output.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.captured.interface import Call
from attnlimit.result import Result
from attnlimit.samplers import Sampler


class Widths(NamedTuple):
    """Numbers in a key and in a value, and bytes of a number."""

    key: int
    value: int
    number: float

    @staticmethod
    def of(call: Call) -> Widths:
        """Widths of a layer's cache."""
        return Widths(call.key.shape[-1], call.value.shape[-1], call.key.element_size())

    @property
    def both(self) -> float:
        """Bytes of a key and its value."""
        return (self.key + self.value) * self.number


def moved_bytes(
    samplers: Sequence[Sampler | None],
    kept: ArrayLike,
    visible: ArrayLike,
    widths: Widths,
    looked: ArrayLike = 0.0,
) -> Array:
    """Bytes (G,) that are read for each of G key-value heads of a layer.

    Parameters
    ----------
    samplers : sequence
        Of the query heads, None where one reads all keys. Query heads that share keys read them
        once, for selection and for attention.
    kept : (G,) array
        Keys that some head of each group keeps, all queries together.
    visible : number or (G,) array
        Keys that the queries see.
    looked : number or (G,) array
        Candidates among them that some head of each group looks at.
    """
    keys = np.asarray(kept, dtype=float)
    key, value, number = widths
    each = [
        (key * number, value * number, 0.0)
        if sampler is None
        else (
            sampler.selection_bytes(key, number),
            sampler.gather_bytes(key, value, number),
            sampler.candidate_bytes(key, number),
        )
        for sampler in samplers
    ]
    selection, gather, candidate = np.array(each).reshape(len(keys), -1, 3).max(1).T
    read = selection * np.asarray(visible) + gather * keys + candidate * np.asarray(looked)
    return np.asarray(read)


def kept_by_group(inclusion: Tensor, groups: int) -> Tensor:
    """Expected keys (G,) that some head of each group keeps, from probabilities (H, R, N)."""
    left_out = (1 - inclusion).unflatten(0, (groups, -1)).prod(1)
    return (1 - left_out).double().sum((1, 2))


@dataclass(eq=False)
class LayerStats:
    """One layer in one pass of the model, all heads and queries of the batch together."""

    squares: Array  # (H,) estimated squared errors of each head's outputs
    groups: int  # key-value heads
    tokens: int = 0  # queries of a head
    queries: int = 0  # of all heads
    read: int = 0  # keys read
    visible: int = 0  # keys that dense attention reads
    bytes: float = 0.0  # of keys, values and proxies that are read
    visible_bytes: float = 0.0  # of all keys and values that are seen
    relative: float = 0.0  # squared errors over squared outputs, of all heads and queries
    unknown: bool = False  # whether some head's error cannot be estimated from what it read
    nats: float = 0.0
    dense: int = 0  # tokens that went back to dense attention

    def count(
        self,
        kept: Tensor,
        visible: Tensor,
        samplers: Sequence[Sampler | None],
        widths: Widths,
        looked: Tensor | None = None,
    ) -> None:
        """Count the keys that queries keep and see, (H, R, N) of bool, and their candidates."""
        shared, seen = (
            some.unflatten(0, (self.groups, -1)).any(1).sum((1, 2)).double().numpy()
            for some in (kept, visible)
        )
        self.queries += kept.shape[0] * kept.shape[1]
        self.read += int(kept.sum())
        self.visible += int(visible.sum())
        candidates = 0.0 if looked is None else kept_by_group(looked, self.groups).numpy()
        self.bytes += float(moved_bytes(samplers, shared, seen, widths, candidates).sum())
        self.visible_bytes += float(seen.sum()) * widths.both


@dataclass(eq=False)
class AttentionStats(Result):
    """Keys that a sampled model has read so far, and its first-order error.

    Errors are those of keys that are drawn and weighted. Keys that a sampler leaves out for good,
    or that a cache has dropped, cannot be seen from the kept ones: `relative_error` is NaN then.
    """

    sensitivity: Array | None = None  # (layers, heads) nats a token for a squared error
    evicts: bool = False  # whether the cache drops keys
    layers: dict[tuple[int, int], LayerStats] = field(default_factory=dict)  # by pass and layer
    cache_bytes: int = 0  # held by the cache that was cut last
    dense_bytes: int = 0  # that all its keys and values would take

    def of_layer(self, number: int, call: Call) -> LayerStats:
        """Statistics of a call's layer in the pass of this number."""
        fresh = LayerStats(np.zeros(call.query.shape[1]), call.key.shape[1])
        return self.layers.setdefault((number, call.layer), fresh)

    def _total(self, name: str) -> float:
        """Sum over passes and layers."""
        return float(sum(getattr(step, name) for step in self.layers.values()))

    def _per_query(self, name: str) -> float:
        """Mean over queries of all heads."""
        return self._total(name) / max(1.0, self._total("queries"))

    def _per_token(self, name: str) -> float:
        """Sum over layers for each token."""
        layers = len({layer for _, layer in self.layers})
        return layers * self._total(name) / max(1.0, self._total("tokens"))

    @property
    def mean_keys(self) -> float:
        """Keys read by a query of a head, on average."""
        return self._per_query("read")

    @property
    def mean_visible(self) -> float:
        """Keys that a query of a head sees, on average."""
        return self._per_query("visible")

    @property
    def mean_bytes(self) -> float:
        """Bytes of keys, values and proxies, read for a token by all layers."""
        return self._per_token("bytes")

    @property
    def visible_bytes(self) -> float:
        """Bytes that dense attention reads for a token."""
        return self._per_token("visible_bytes")

    @property
    def relative_error(self) -> float:
        """Root mean square of |error| / |output| over heads and queries, estimated."""
        unknown = self.evicts or self._total("unknown") > 0
        return float("nan") if unknown else self._per_query("relative") ** 0.5

    @property
    def kl(self) -> float:
        """Estimated KL from the dense model in nats a token, with a plan that was made for KL."""
        if self.sensitivity is None:
            raise BadInput(
                "The effect of head errors on the output comes with a plan; use one that "
                "al.models.plan(model, texts, kl=...) made with a sampler that draws keys."
            )
        return self._per_token("nats")

    @property
    def dense_share(self) -> float:
        """Share of layers and tokens that went back to dense attention."""
        return self._total("dense") / max(1.0, self._total("tokens"))

    def mean_squares(self) -> Array:
        """Estimated mean squared error of each head's output, (layers, heads)."""
        sums: dict[int, Array] = {}
        for (_, layer), step in self.layers.items():
            sums[layer] = sums.get(layer, 0.0) + step.squares
        tokens = max(1.0, self._total("tokens") / len(sums))
        return np.array([sums[layer] for layer in sorted(sums)]) / tokens

    def to_frame(self) -> pd.DataFrame:
        """One row for each pass and layer: keys read, relative error, nats if they are known."""
        rows = []
        for (number, layer), step in sorted(self.layers.items()):
            if not step.queries:  # a pass in which nothing was sampled
                continue
            unknown = step.unknown or self.evicts
            row = {
                "pass": number,
                "layer": layer,
                "tokens": step.tokens,
                "mean_keys": step.read / step.queries,
                "mean_visible": step.visible / step.queries,
                "bytes": step.bytes / step.tokens,
                "relative_error": np.nan if unknown else np.sqrt(step.relative / step.queries),
                "dense": step.dense / step.tokens,
            }
            rows.append(row if self.sensitivity is None else row | {"kl": step.nats / step.tokens})
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        text = f"{self.mean_keys:.1f} of {self.mean_visible:.1f} keys read by each query"
        if self.layers and not np.isnan(self.relative_error):
            text += f"; heads err by {100 * self.relative_error:.2g} %"
        if self.layers and self.sensitivity is not None:
            text += f", about {self.kl:.2g} nats a token"
        text += f"; {100 * self.dense_share:.2g} % dense" if self.dense_share else ""
        if not self.dense_bytes:
            return text
        return f"{text}; cache of {self.cache_bytes / 1e6:.2f} of {self.dense_bytes / 1e6:.2f} MB"
