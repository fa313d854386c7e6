"""What does the mean error of every head do to the output? One pass in which heads err by it.

Mean errors add up over heads, layers and queries, so a few probes see them badly, and layers that
err feed layers that err, which no derivative at the dense model sees. A pass in which every head
gives its expected output has both; where nothing is drawn it is the thinned model itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnlimit.models.capture.dense import BLOCK_SCORES, attend_dense, call_products, grouped
from attnlimit.models.capture.encode import Encoded
from attnlimit.models.capture.interface import Call, attention_as
from attnlimit.models.output.first_order import scatter
from attnlimit.models.output.target import Target
from attnlimit.models.spend.assign import Table, grouped_by_sampler
from attnlimit.models.spend.outputs import run
from attnlimit.samplers import Sampler


def is_biased(table: Table) -> bool:
    """Whether some head leaves keys out without making up for them."""
    return any(
        sampler is not None and (sampler.draws == "nothing" or not sampler.weighted)
        for row in table
        for sampler in row
    )


def bias_distance(
    network: Any, encoded: Encoded, target: Target, read: Tensor, table: Table
) -> float:
    """Distance of the output from the dense model's, `read`, when heads err by their mean error."""

    def attention(call: Call) -> Tensor:
        return _attend_expected(call, table[call.layer])

    with torch.no_grad(), attention_as(network, attention):
        return target.distance(read, target.read(run(network, encoded)))


def _attend_expected(call: Call, samplers: list[Sampler | None]) -> Tensor:
    """Outputs of a layer whose heads weigh every key as they do on average."""
    groups = grouped_by_sampler(enumerate(samplers))
    if not groups:
        return attend_dense(call)
    heads, length = call.query.shape[1:3]
    whole_keys = any(sampler.asks_keys for sampler, _ in groups)
    step = max(1, BLOCK_SCORES // (heads * call.key.shape[2]))
    outputs = []
    for start in range(0, length, step):
        rows = slice(start, start + step)
        block = call if whole_keys else call.up_to(rows)
        products, values = call_products(block, rows), grouped(block.value[0], heads)
        scores = products.exact()
        weights = torch.softmax(scores, -1)
        for sampler, members in groups:
            chosen = sampler.seeing(products.of(members))
            law = scatter(chosen, scores[members], weights[members], call.places(rows))
            weights[members] = law.mean
        outputs.append(weights @ values)
    return torch.cat(outputs, dim=1)[None]
