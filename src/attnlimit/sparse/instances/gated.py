"""Attention that a user brings: gated attention of three matrices, or a module that scores.

Score of an instance h: <w, tanh(V h + v) * sigmoid(U h + u)>, without the gate where there is no U.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import expit

from attnlimit.checks import Array, real_array
from attnlimit.errors import BadInput
from attnlimit.sparse.pooling.scored import ScoredBags

_NAMES = (
    ("attention_a.0", "attention_b.0", "attention_c"),  # CLAM
    ("attention_V.0", "attention_U.0", "attention_w"),  # AttentionDeepMIL
    ("fc1", "fc_gated", "fc2"),  # torchmil
)


@dataclass(frozen=True, eq=False)
class GatedAttention:
    """Gated attention pooling, and the readout of its pooled features.

    Parameters
    ----------
    V : (hidden, dim) array
    w : (hidden,) array
    U : (hidden, dim) array, optional
        The gate.
    v, u : (hidden,) arrays, optional
        What is added inside tanh and inside the gate.
    weights, bias : (dim,) array and float, optional
        Readout; without it only the error of the feature is known.
    """

    V: ArrayLike
    w: ArrayLike
    U: ArrayLike | None = None
    v: ArrayLike = 0.0
    u: ArrayLike = 0.0
    weights: Array | None = None
    bias: float = 0.0

    def __post_init__(self) -> None:
        V = real_array(self.V, "V", ndim=2)
        w = real_array(self.w, "w").reshape(-1)
        U = None if self.U is None else real_array(self.U, "U", ndim=2)
        if len(w) != len(V) or (U is not None and U.shape != V.shape):
            gate = "" if U is None else f", U of {U.shape}"
            raise BadInput(
                "V and U must be (hidden, dim) and w (hidden,): "
                f"got V of {V.shape}{gate} and w of {w.shape}."
            )
        for name, value in (("V", V), ("w", w), ("U", U)):
            object.__setattr__(self, name, value)

    def scores(self, bag: ArrayLike) -> Array:
        """Score of each instance of a bag (instances, dim)."""
        V, w = np.asarray(self.V), np.asarray(self.w)
        h = real_array(bag, "a bag", ndim=2)
        if h.shape[1] != V.shape[1]:
            raise BadInput(
                f"the attention scores instances of {V.shape[1]} features, but a bag has "
                f"{h.shape[1]}; give it the features that it was trained on."
            )
        hidden = np.tanh(h @ V.T + self.v)
        if self.U is not None:
            hidden = hidden * expit(h @ np.asarray(self.U).T + self.u)
        return np.asarray(hidden @ w)

    def scored(self, X: Sequence[ArrayLike]) -> ScoredBags:
        """Scores and features of the instances of bags."""
        features = [real_array(bag, "a bag", ndim=2) for bag in X]
        return ScoredBags([*map(self.scores, features)], features, self.weights, self.bias)

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], weights: Array | None = None, bias: float = 0.0
    ) -> GatedAttention:
        """Attention from a state dict with the names that CLAM, AttentionDeepMIL or torchmil use.

        Whatever the names begin with, an outer module's name for example, does not matter.
        """
        for value, gate, last in _NAMES:
            for key in state:
                if not key.endswith(f"{value}.weight"):
                    continue
                start = key[: -len(f"{value}.weight")]

                def part(name: str, at: str = start) -> Any:
                    found = state.get(f"{at}{name}")
                    return None if found is None else np.asarray(found, dtype=float)

                w = part(f"{last}.weight")
                if w is None:
                    continue
                if len(w) > 1:
                    raise BadInput(
                        f"{start}{last} has {len(w)} attention branches; take the rows of one."
                    )
                v, u = part(f"{value}.bias"), part(f"{gate}.bias")
                gates = part(f"{gate}.weight")
                inner = (0.0 if v is None else v, 0.0 if u is None else u)
                return cls(part(f"{value}.weight"), w, gates, *inner, weights, bias)
        raise BadInput(
            "no gated attention was found in the state: expected "
            + ", or ".join(" and ".join(names) for names in _NAMES)
            + "; give GatedAttention(V, w, U) its matrices instead."
        )


@dataclass(frozen=True, eq=False)
class _Module:
    """Scores by calling a torch module on the instances of a bag."""

    module: torch.nn.Module

    def scored(self, X: Sequence[ArrayLike]) -> ScoredBags:
        features = [real_array(bag, "a bag", ndim=2) for bag in X]
        return ScoredBags([*map(self._scores, features)], features)

    def _scores(self, bag: Array) -> Array:
        kind = next((p.dtype for p in self.module.parameters()), torch.float32)
        with torch.no_grad():
            found = self.module(torch.as_tensor(bag, dtype=kind))
        if not isinstance(found, torch.Tensor) or found.numel() != len(bag):
            raise BadInput(
                f"{type(self.module).__name__} must give one score for each of a bag's {len(bag)} "
                "instances, before the softmax; wrap it in a module that does, or give "
                "GatedAttention(V, w, U) its matrices."
            )
        return np.asarray(found.double().reshape(-1).numpy())


def module_attention(module: torch.nn.Module) -> GatedAttention | _Module:
    """Return the gated attention that a module holds, or else the module as what scores."""
    state = {key: value.detach().cpu() for key, value in module.state_dict().items()}
    known = any(key.endswith(f"{names[0]}.weight") for key in state for names in _NAMES)
    return GatedAttention.from_state(state) if known else _Module(module)
