"""Keys, bytes, time and loss of fast decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from attnlimit.checks import Array
from attnlimit.decoding.control import Losses
from attnlimit.decoding.dot import BLOCK
from attnlimit.errors import BadInput
from attnlimit.planning.cost import Shape
from attnlimit.result import Result, format_pm


@dataclass(eq=False)
class DecodingStats(Result):
    """Numbers of the tokens decoded so far; the prompt is not counted."""

    sensitivity: Array | None  # (layers, heads) nats a token for a squared error of a head
    shape: Shape
    losses: Losses  # of tokens that were read both ways
    row_bytes: Array  # (layers,) of a key and its value, as the cache holds them
    totals: dict[int, Array] = field(default_factory=dict)  # by layer, (tasks, 4)
    seconds_each: list[float] = field(default_factory=list)  # of each decoded token
    attention_each: list[float] = field(default_factory=list)  # of those, in sampled layers
    tokens: int = 0  # decoded, of all sequences
    dense_tokens: int = 0  # of those, tokens that read all keys
    dense_layers: int = 0  # layers of tokens that were past the limit
    visible: float = 0.0  # keys of a head, evicted ones included, summed over sampled tokens
    held: float = 0.0  # of those, keys that are in the cache
    fixed_bytes: float = 0.0  # read whatever is drawn
    cache_bytes: int = 0  # memory of the cache
    layers: int = 0  # that are sampled
    two_level_keys: float = 0.0  # of `held`, those of tokens that were read with two levels

    def begin_token(self, batch: int, length: int, held: Sequence[float], rule: int) -> None:
        """Count a decoded token of each sequence of a batch; `rule` as `CostModel` orders them.

        `held` are the keys that a head of each layer holds, on average, of `length`.
        """
        self.tokens += batch
        self.attention_each.append(0.0)
        if rule == 0:
            self.dense_tokens += batch
            return
        self.layers, mean = len(held), float(np.mean(held))
        self.visible += batch * length
        self.held += batch * mean
        each = mean * self.shape.code_bytes
        if rule == 2:
            each = mean // BLOCK * (4 * self.shape.width + 4)
            self.two_level_keys += batch * mean
        self.fixed_bytes += batch * self.layers * self.shape.key_heads * each

    def totals_of(self, layer: int, tasks: int) -> Array:
        """Sums of a layer, (tasks, 4), to which the kernels add."""
        held = self.totals.get(layer)
        if held is None or len(held) != tasks:
            fresh = np.zeros((tasks, 4))
            if held is not None:  # a batch of another size
                heads = self.shape.heads
                fresh[:heads] = held.reshape(-1, heads, 4).sum(0)
            held = self.totals[layer] = fresh
        return held

    def by_head(self, column: int) -> Array:
        """Sums of one kind, (layers, heads), layers in their order."""
        heads = self.shape.heads
        return np.stack([
            self.totals[layer][:, column].reshape(-1, heads).sum(0) for layer in sorted(self.totals)
        ])  # fmt: skip

    @property
    def sampled_tokens(self) -> int:
        """Decoded tokens that read few keys."""
        return self.tokens - self.dense_tokens

    def _mean(self, column: int) -> float:
        """Mean over sampled tokens, layers and heads."""
        if not self.sampled_tokens or not self.totals:
            return float("nan")
        return float(self.by_head(column).mean()) / self.sampled_tokens

    @property
    def keys(self) -> float:
        """Keys that a query of a head keeps and reads exactly, on average over sampled tokens."""
        return self._mean(0)

    @property
    def scored(self) -> float:
        """Keys that a query of a head reads 4 bits of, on average over sampled tokens."""
        return self._mean(1)

    @property
    def mean_visible(self) -> float:
        """Keys that a query of a head sees, on average over sampled tokens."""
        return self.visible / max(1, self.sampled_tokens)

    @property
    def bytes(self) -> float:
        """Bytes of keys, values and their index that a sampled token reads, in all layers.

        Query heads that share keys are counted one by one for keys that are drawn, so this is an
        upper bound.
        """
        if not self.totals:
            return float("nan")
        drawn = float(self.by_head(1).sum()) * self.two_level_keys / max(1.0, self.held)
        rows = self.row_bytes[sorted(self.totals)]
        read = float(self.by_head(0).sum(1) @ rows) + drawn * self.shape.code_bytes
        return (self.fixed_bytes + read) / max(1, self.sampled_tokens)

    @property
    def dense_bytes(self) -> float:
        """Bytes that dense attention reads for a token, in the same layers."""
        return self.layers * self.shape.key_heads * self.mean_visible * self.shape.row_bytes

    @property
    def seconds(self) -> float:
        """Time of all decoded tokens."""
        return float(sum(self.seconds_each))

    @property
    def attention_seconds(self) -> float:
        """Time of attention of all decoded tokens, in layers that are sampled."""
        return float(sum(self.attention_each))

    @property
    def kl(self) -> float:
        """Loss of a decoded token in nats, mean over sampled tokens.

        Measured where a target was given to `fast_decoding`; otherwise estimated from the keys
        that were kept and the plan's sensitivities, which belong to the plan's own texts. The
        predicted loss of a plan's bits and evictions is added.
        """
        if self.losses.kl:
            return self.losses.stored + self.losses.mean()
        if self.sensitivity is None:
            raise BadInput(
                "The effect of head errors on the output comes with a plan; use one that "
                "al.models.plan(model, texts, kl=..., decode=...) made, or give kl= and decode "
                "more tokens."
            )
        if not self.totals:
            return 0.0
        rows = self.sensitivity[sorted(self.totals)]
        read = float((rows * self.by_head(2)).sum()) / max(1, self.sampled_tokens)
        return self.losses.stored + read

    @property
    def kl_stderr(self) -> float:
        """Standard error of a measured loss; NaN for an estimate."""
        return self.losses.stderr()

    def to_frame(self) -> pd.DataFrame:
        """One row for each head: keys kept and scored by a query."""
        layers, heads = sorted(self.totals), self.shape.heads
        count = max(1, self.sampled_tokens)
        kept, scored = (
            self.by_head(column).ravel() / count if layers else np.zeros(0) for column in (0, 1)
        )
        return pd.DataFrame(
            {
                "layer": np.repeat(layers, heads),
                "head": np.tile(np.arange(heads), len(layers)),
                "keys": kept,
                "scored": scored,
            }
        )

    def __str__(self) -> str:
        lines = [f"{self.tokens} tokens decoded"]
        if self.dense_tokens:
            lines[0] += f", {self.dense_tokens} of them with all keys, where that is faster"
        if self.seconds_each:
            middle = 1e3 * float(np.median(self.seconds_each))
            lines[0] += f"; {middle:.3g} ms a token (median)"
        if self.sampled_tokens and self.totals:
            share = 100 * self.bytes / self.dense_bytes
            lines.append(
                f"  a query keeps {self.keys:.1f} of {self.mean_visible:.0f} keys and reads 4 bits "
                f"of {self.scored:.0f}; {self.bytes / 1e6:.3g} of {self.dense_bytes / 1e6:.3g} MB "
                f"({share:.2g} %) for a token"
            )
        if self.losses.kl:
            seen = format_pm(self.kl, self.kl_stderr)
            lines.append(f"  loss {seen} nats a token, measured on {len(self.losses.kl)} tokens")
        elif self.sensitivity is not None and self.totals:
            lines.append(f"  loss {self.kl:.2g} nats a token, estimated from the keys kept")
        return "\n".join(lines)
