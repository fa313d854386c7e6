"""What of a model decides what measuring it costs? A few whole numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnlimit import checks
from attnlimit.errors import BadInput

if TYPE_CHECKING:
    from attnlimit.models import LoadedModel


@dataclass(frozen=True)
class Shape:
    """Sizes of a transformer.

    `parameters` are held in memory; `multiplied` of them take part in a matrix product for each
    token (tables of embeddings do not), all of them unless said otherwise.
    """

    layers: int
    heads: int  # query heads of a layer
    kv_heads: int
    head_dim: int
    parameters: float
    multiplied: float = 0.0
    causal: bool = True

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "kv_heads", "head_dim"):
            checks.count(getattr(self, name), f"--{name.replace('_', '-')}")
        if self.heads % self.kv_heads:
            raise BadInput(
                f"--heads {self.heads} must be a multiple of --kv-heads {self.kv_heads}: "
                "heads of a group share their keys."
            )
        checks.positive(self.parameters, "--parameters")
        if not self.multiplied:
            object.__setattr__(self, "multiplied", float(self.parameters))
        checks.positive(self.multiplied, "multiplied")

    @property
    def width(self) -> int:
        """Numbers in a token's hidden state."""
        return self.heads * self.head_dim

    @property
    def kv_rows(self) -> int:
        """Queries, keys and values of all layers, each head's counted alike."""
        return self.layers * (self.heads + 2 * self.kv_heads)

    @property
    def all_heads(self) -> int:
        """Heads of all layers."""
        return self.layers * self.heads


NAMED = {
    "minilm": Shape(6, 12, 12, 32, 22_713_216, 10_764_288, causal=False),
    "smollm2": Shape(30, 9, 3, 64, 134_515_008, 106_168_320),
    "llama-8b": Shape(32, 32, 8, 128, 8.03e9, 6.98e9),
    "llama-70b": Shape(80, 64, 8, 128, 70.6e9, 68.5e9),
}
"""Shapes known by name: the two bundled models, and two sizes that people ask about."""


def shape_of(model: LoadedModel) -> Shape:
    """Shape of a loaded model."""
    from torch.nn import Linear

    base = model.model.base_model
    config = base.config
    heads = int(config.num_attention_heads)
    products = [part for part in base.modules() if isinstance(part, Linear)]
    return Shape(
        layers=int(config.num_hidden_layers),
        heads=heads,
        kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        head_dim=int(getattr(config, "head_dim", None) or config.hidden_size // heads),
        parameters=float(sum(part.numel() for part in base.parameters())),
        multiplied=float(sum(part.weight.numel() for part in products)),
        causal=bool(model.causal),
    )
