"""Captured queries, keys, values and masks of every head; nothing here is N x N."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any

import pydantic
import torch
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.models.attention import BLOCK_ENTRIES, Mask, masked_scores, precise, row_blocks
from attnlimit.samplers import Products


@dataclass(frozen=True, eq=False)
class CapturedHead:
    """One head over N tokens: score of query i on key j is scale <q_i, k_j>, where j is visible.

    Unpacks as `q, k, v, mask = cap[layer, head]`.
    """

    layer: int
    head: int
    q: Tensor  # (N, d)
    k: Tensor  # (N, d)
    v: Tensor  # (N, d_v)
    mask: Mask
    scale: float
    softcap: float | None = None
    bias: Tensor | None = None  # (2N-1,) added to the score, by the distance j - i + N - 1

    def __iter__(self) -> Iterator[Any]:
        return iter((self.q, self.k, self.v, self.mask))

    def __len__(self) -> int:
        return len(self.q)

    @property
    def plain(self) -> bool:
        """Whether attention is the softmax of all scaled products and no more."""
        return self.mask.full and self.softcap is None and self.bias is None

    def scores(self, rows: slice | Tensor = slice(None)) -> Tensor:
        """Scores (rows, N) of a block of queries, -inf where a key is not visible."""
        return self._of_products((self.scale * self.q[rows]) @ self.k.T, rows)

    def products(self, rows: slice | Tensor = slice(None)) -> Products:
        """What samplers that look at queries and keys are given."""
        return Products(self.scale * self.q[rows], self.k, partial(self._of_products, rows=rows))

    def _of_products(self, scores: Tensor, rows: slice | Tensor) -> Tensor:
        bias = None
        if self.bias is not None:
            place = self.mask.positions
            middle = (len(self.bias) - 1) // 2
            bias = self.bias[place[None, :] - place[rows][:, None] + middle]
        visible = None if self.mask.full else self.mask.visible(rows)
        return masked_scores(scores, self.softcap, bias, visible)

    def blocks(self, entries: int = BLOCK_ENTRIES) -> Iterator[tuple[slice, Tensor]]:
        """Blocks of queries and their scores, together all queries."""
        for rows in row_blocks(len(self), len(self), entries):
            yield rows, self.scores(rows)

    def output(self) -> Tensor:
        """Attention of every query over all its keys, (N, d_v)."""
        return torch.cat([torch.softmax(scores, -1) @ self.v for _, scores in self.blocks()])


@pydantic.dataclasses.dataclass(frozen=True, config={"strict": True, "extra": "forbid"})
class Probes:
    """Random scalars of the model's output, whose gradients are kept with a capture."""

    output: Annotated[str, pydantic.Field(pattern="^(kl|cosine)$")]
    count: Annotated[int, pydantic.Field(ge=1, le=1 << 16)]
    seed: Annotated[int, pydantic.Field(ge=0)]


@dataclass(frozen=True, eq=False)
class OutputGradients:
    """Gradients of the probes at the attention outputs of a layer."""

    g: Tensor  # (K, H, N, d_v)
    scale: float  # an error e of the layer's outputs moves the model's by scale E <g, e>^2
    limit: float  # largest distance of outputs for which that holds


@dataclass(frozen=True, eq=False)
class CapturedLayer:
    """Queries, keys and values of one layer, all heads."""

    q: Tensor  # (H, N, d)
    k: Tensor  # (H_kv, N, d)
    v: Tensor  # (H_kv, N, d_v)
    mask: Mask
    scale: float
    softcap: float | None = None
    bias: Tensor | None = None  # (H, 2N-1)
    gradients: OutputGradients | None = None

    @staticmethod
    def checked(layer: int, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> CapturedLayer:
        """Check one layer's tensors, which are the model's own."""
        for name, tensor in (("queries", q), ("keys", k), ("values", v)):
            if not torch.isfinite(tensor).all():
                raise BadInput(
                    f"The {name} of layer {layer} contain NaN or infinite numbers: the model's "
                    "weights are damaged or its precision is too low; load it in float32."
                )
        return CapturedLayer(q, k, v, *rest)

    def copied(self) -> CapturedLayer:
        """Copy the tensors to this machine's memory, so that other activations can be freed."""
        q, k, v = (tensor.cpu().contiguous().clone() for tensor in (self.q, self.k, self.v))
        return replace(self, q=q, k=k, v=v)

    def head(self, layer: int, head: int) -> CapturedHead:
        """One head; query heads of a group share keys and values."""
        group = head * len(self.k) // len(self.q)
        q, k, v = (precise(t) for t in (self.q[head], self.k[group], self.v[group]))
        bias = None if self.bias is None else precise(self.bias[head])
        return CapturedHead(layer, head, q, k, v, self.mask, self.scale, self.softcap, bias)

    def probe_gradients(self, probes: slice) -> Tensor:
        """Gradients (K, H, N, d_v) of some of the probes that are kept."""
        assert self.gradients is not None
        return precise(self.gradients.g[probes]).clone()


@dataclass(frozen=True, eq=False)
class Captured:
    """Every captured layer of a model on one text: the data of a `Capture`."""

    layers: Mapping[int, CapturedLayer]
    tokens: tuple[str, ...]  # as the tokenizer writes them
    positions: Tensor  # (N,) place of each token in the document
    special: Tensor  # (N,) which tokens are special, like [CLS]
    depth: int  # layers in the model
    heads: int
    source: dict[str, Any] = field(default_factory=dict)
    probes: Probes | None = None  # whose gradients the layers have

    def __len__(self) -> int:
        """Number of tokens N."""
        return len(self.positions)

    def __getitem__(self, place: tuple[int, int]) -> CapturedHead:
        try:
            layer, head = place
        except (TypeError, ValueError):
            raise BadInput(f"Name a head as cap[layer, head], got {place!r}.") from None
        layer = self.check_layer(layer)
        return self.layers[layer].head(layer, self.check_head(head))

    def __iter__(self) -> Iterator[CapturedHead]:
        """All heads, layer by layer."""
        for layer, captured in self.layers.items():
            for head in range(len(captured.q)):
                yield captured.head(layer, head)

    def check_layer(self, layer: int) -> int:
        """Return the layer's number; negative ones count from the last."""
        number = _number(layer, "layer", "the model", self.depth)
        if number not in self.layers:
            kept = ", ".join(map(str, self.layers))
            raise BadInput(f"Layer {number} is not in this capture; ask for one of {kept}.")
        return number

    def check_head(self, head: int) -> int:
        """Return the head's number; negative ones count from the last."""
        return _number(head, "head", "each layer", self.heads)

    def __repr__(self) -> str:
        name = self.source.get("model", "model")
        return f"Capture({name}, layers={len(self.layers)}, heads={self.heads}, tokens={len(self)})"


def _number(value: int, name: str, owner: str, count: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"The {name} must be a whole number, got {value!r}.")
    if not -count <= value < count:
        raise BadInput(f"There is no {name} {value}: {owner} has {count}, from 0.")
    return value % count
