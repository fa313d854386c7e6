"""How much does the output feel an error of each head? Hardly a matter of the text: of the model.

An error e of a head's output costs half of E <g, e>^2 over probes g (docs/theory/output.md). Where
its direction is not known that is |g|^2 |e|^2 / d, so heads compare by the mean square of g.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.models.capture.encode import encode, unwrap
from attnlimit.models.capture.interface import Call
from attnlimit.models.output.probes import probe
from attnlimit.models.output.target import choose_target


def output_weights(model: Any, text: Any, *, probes: int = 4, seed: int = 0) -> Array:
    """Nats that the next token loses for a squared error of one in each KV head's outputs.

    The mean over the text's queries, summed over the query heads that share keys: (layers, KV
    heads). Two texts give nearly the same, so one text serves a model:
    `al.models.Evict(0.25, sizes=al.models.output_weights(model, text))`.

    Parameters
    ----------
    model : LoadedModel or transformers model
        A causal one.
    text : str, token ids or ready inputs
        Any text such as the model reads.
    probes : int
        Backward passes.
    """
    network, _ = unwrap(model)
    target = choose_target(network, "kl")
    found: dict[int, Tensor] = {}

    def reduce(call: Call, gradients: Tensor, group: slice) -> None:
        squares = gradients.double().square().mean((2, 3)).sum(0)
        shared = squares.view(call.key.shape[1], -1).sum(1)
        found[call.layer] = found.get(call.layer, torch.zeros_like(shared)) + shared

    times = checks.count(probes, "probes")
    root = checks.count(seed, "seed", smallest=0)
    probed = probe(network, encode(model, text), target, times, root, reduce)
    stacked = torch.stack([found[layer] for layer in sorted(found)])
    return np.asarray(probed.scale / times * stacked.cpu().numpy())
