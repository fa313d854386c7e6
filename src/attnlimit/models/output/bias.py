"""What does the mean error of every head do to the output, all positions at once? One JVP.

Mean errors add up over heads, layers and queries, so a few probes see them badly; one pass of
forward-mode differentiation, with the mean error as the tangent of every layer's attention output,
sees them whole.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from attnlimit.models.capture.dense import BLOCK_SCORES, call_scores, grouped
from attnlimit.models.capture.encode import Encoded
from attnlimit.models.capture.interface import Call, attention_as
from attnlimit.models.output.first_order import scatter
from attnlimit.models.output.target import Target
from attnlimit.models.spend.assign import Table, grouped_by_sampler
from attnlimit.models.spend.outputs import run
from attnlimit.samplers import Sampler


def bias_moved(network: Any, encoded: Encoded, target: Target, table: Table) -> float:
    """Second-order distance of the output when every head errs by its mean error."""

    def attention(call: Call) -> Tensor:
        return _attend(call, table[call.layer])

    with torch.inference_mode(False), torch.no_grad(), forward_ad.dual_level():
        with attention_as(network, attention):
            read = target.read(run(network, encoded))
        plain, change = forward_ad.unpack_dual(read)
        return 0.0 if change is None else target.moved(plain, change)


def _attend(call: Call, samplers: list[Sampler | None]) -> Tensor:
    heads, length = call.query.shape[1:3]
    values = grouped(call.value[0], heads)
    plain_values = forward_ad.unpack_dual(values).primal
    groups = grouped_by_sampler(enumerate(samplers))
    step = max(1, BLOCK_SCORES // (heads * call.key.shape[2]))
    outputs = []
    for start in range(0, length, step):
        rows = slice(start, start + step)
        scores = call_scores(call, rows)
        weights = torch.softmax(scores, -1)
        output = weights @ values
        plain_scores = forward_ad.unpack_dual(scores).primal
        plain_weights = forward_ad.unpack_dual(weights).primal
        plain, tangent = forward_ad.unpack_dual(output)
        moved = torch.zeros_like(plain) if tangent is None else tangent.clone()
        for sampler, members in groups:
            law = scatter(sampler, plain_scores[members], plain_weights[members], call.places(rows))
            moved[members] += (law.mean - plain_weights[members]) @ plain_values[members]
        outputs.append(forward_ad.make_dual(plain, moved))
    return torch.cat(outputs, dim=1)[None]
