"""What does a law need of each query's keys? Sums over them at every t, for a block of queries.

With w = t e^s for a key of score s these are the means over the keys that a query sees of e^{-w},
w e^{-w} f and w^2 e^{-w} f, at t = t_0 e^{jh}; t_0 is each query's own.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.theory.one_query.quadrature import STEP, log_phi
from attnlimit.theory.one_query.sampled import squared_distance

_DEPTH = 16.0  # minus the logarithm of E e^{-tD} where it is negligible
_LONGEST = {torch.float32: 60.0, torch.float64: 700.0}  # log of t / t_0, before digits run out


class QuerySums(NamedTuple):
    """Means over the keys, (queries, nodes)."""

    log_phi: Array  # log E e^{-w}
    mass: Array  # E w e^{-w}
    square: Array  # E w^2 e^{-w}
    spread: Array  # E w^2 e^{-w} |u|^2, u the value less the output
    moments: Array  # E w e^{-w} u, (queries, nodes, d_v), in the precision of the sums


def query_sums(
    start: Tensor, values: Tensor, output: Tensor, seen: Tensor, fewest: int
) -> QuerySums:
    """Sum over keys, from t_0 to where `fewest` keys are sure to weigh more than 1 / t.

    `start` (R, N) is w at t_0, zero where a key is not visible, and its precision is that of the
    sums; `values` (N, d_v) and `output` (R, d_v) are in float64; `seen` (R,) counts visible keys.
    """
    distance = squared_distance(output, values).to(start)
    values, output = values.to(start), output.to(start)
    first = start / -math.log(2)  # in powers of two, which are quicker than those of e
    enough = seen * -math.expm1(-_DEPTH / fewest)
    found: list[tuple[Tensor, ...]] = []
    for node in range(int(_LONGEST[start.dtype] / STEP)):
        exponent = first * math.exp(STEP * node)
        weight = torch.exp2(exponent)
        missed = (1 - weight).sum(1)
        weight *= exponent
        mass, linear = weight.sum(1), weight @ values
        weight *= exponent
        square, spread = weight.sum(1), torch.linalg.vecdot(weight, distance)
        found.append((missed, mass, linear, square, spread))
        if (missed > enough).all():
            break
    missed, mass, linear, square, spread = (
        torch.stack(sums, 1) for sums in zip(*found, strict=True)
    )
    moments = torch.addcmul(linear, mass[..., None], output[:, None], value=-1)
    share = 1 / seen.double()[:, None]
    once, twice = -math.log(2) * share, math.log(2) ** 2 * share
    return QuerySums(
        log_phi((missed * share).numpy()),
        (mass * once).numpy(),
        (square * twice).numpy(),
        (spread * twice).numpy(),
        moments.mul_(once[..., None].to(start)).numpy(),
    )
