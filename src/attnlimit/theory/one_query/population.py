"""Error of attention over n keys drawn from a finite population, at many queries at once.

The law of docs/theory/exact-law.md with sums over the N tokens of a document in place of
expectations, for many queries at once: one sweep over t serves every n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.theory.one_query.quadrature import (
    START,
    STEP,
    check_weights,
    log_phi,
    meeting,
    start_weights,
)
from attnlimit.theory.one_query.sampled import BLOCK, checked, squared_distance

TOLERANCE = 1e-4
"""How far from one the weights may sum in float32; beyond it, float64 takes over."""

_SINGLE_COUNT = 4096
_DRAWN = 4  # times the strongest key may be drawn, above all of the others, before t_0 must fall


@dataclass(frozen=True, eq=False)
class PopulationLaw:
    """Error of attention over n keys drawn with replacement, at each of R queries."""

    n: NDArray[np.int64]
    mse: Array  # (R, len(n))            E |Gamma_n - Gamma|^2
    participation: Array  # (R, len(n))  E sum_i p_i^2
    bias: Array | None  # (R, len(n), d_v)  E Gamma_n - Gamma, on request
    output: Array  # (R, d_v)  Gamma
    check: float  # largest distance of the normalisation from one


def population_law(
    scores: ArrayLike | Tensor, values: ArrayLike | Tensor, n: ArrayLike, *, bias: bool = False
) -> PopulationLaw:
    """Exact law of attention over `n` keys drawn with replacement from those a query sees.

    Parameters
    ----------
    scores : (R, N) array or tensor
        Scores of R queries on N keys; -inf where a key is not visible.
    values : (N, d_v) array or tensor
    n : sequence of int
        Numbers of keys drawn, each at least 2.
    """
    counts = np.unique(np.atleast_1d(checks.token_counts(n)))
    given = np.atleast_1d(np.asarray(n, dtype=np.int64))
    rows, points = checked(scores, values)
    single = rows.dtype == torch.float32 and counts[-1] <= _SINGLE_COUNT
    law = _sweep(rows, points, counts, bias, torch.float32 if single else torch.float64)
    if law.check > TOLERANCE:  # digits ran out
        law = _sweep(rows, points, counts, bias, torch.float64)
    check_weights(np.array(1 + law.check), TOLERANCE)
    if np.array_equal(counts, given):
        return law
    order = np.searchsorted(counts, given)
    shift_at = None if law.bias is None else law.bias[:, order]
    return replace(
        law, n=given, mse=law.mse[:, order], participation=law.participation[:, order],
        bias=shift_at,
    )  # fmt: skip


def _sweep(
    rows: Tensor, points: Tensor, counts: NDArray[np.int64], bias: bool, dtype: torch.dtype
) -> PopulationLaw:
    """Each query begins at its own t_0; those that need about as many nodes go together."""
    seen = torch.isfinite(rows).sum(1)
    shift = torch.logsumexp(rows, 1) - torch.log(seen)  # log-mean-exp over the visible keys
    start = torch.exp(rows.to(dtype) - shift[:, None])  # e^s over its mean
    start *= START / (counts[-1] + _DRAWN * start.amax(1, keepdim=True))
    order = torch.argsort(start.sqrt().sum(1) / seen)
    centre = points.double().mean(0)
    values = points.double() - centre
    blocks = order.split(max(1, BLOCK // rows.shape[1]))
    parts = [_block(start[block], values, seen[block], counts, bias) for block in blocks]
    back = torch.argsort(order).numpy()
    mse, participation, total, shifted, output = (
        np.concatenate(arrays)[back] for arrays in zip(*parts, strict=True)
    )
    return PopulationLaw(
        n=counts,
        mse=mse,
        participation=participation,
        bias=shifted if bias else None,
        output=output + centre.numpy(),
        check=float(np.abs(total - 1).max()),
    )


def _block(
    start: Tensor, values: Tensor, seen: Tensor, counts: NDArray[np.int64], bias: bool
) -> tuple[Array, ...]:
    """Sums over t for a block of queries; `start` is t e^s at the first node."""
    output = ((start @ values.to(start)) / start.sum(1, keepdim=True)).to(values)
    sums = query_sums(start, values, output, seen, int(counts[0]))
    once = meeting(sums.log_phi[:, None], counts[:, None].astype(np.float64), 1, STEP)
    # Where two keys meet, phi has one power less and there are n - 1 times as many ways.
    pull = np.square(sums.moments).sum(-1) / np.exp(sums.log_phi)
    first, second = (start_weights(sums.mass.shape[1], power) for power in (1, 2))
    columns = [first * sums.mass, *(second * column for column in (sums.square, sums.spread, pull))]
    total, participation, alone, paired = np.moveaxis(once @ np.stack(columns, -1), -1, 0)
    mse = alone + (counts - 1) * paired
    shifted = (once * first) @ sums.moments if bias else np.empty((len(start), 0))
    return mse, participation, total, shifted, output.numpy()


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
    nodes: list[tuple[Tensor, ...]] = []
    for node in range(int(_LONGEST[start.dtype] / STEP)):
        exponent = first * math.exp(STEP * node)
        weight = torch.exp2(exponent)
        missed = (1 - weight).sum(1)
        weight *= exponent
        mass, linear = weight.sum(1), weight @ values
        weight *= exponent
        square, spread = weight.sum(1), torch.linalg.vecdot(weight, distance)
        nodes.append((missed, mass, linear, square, spread))
        if (missed > enough).all():
            break
    missed, mass, linear, square, spread = (
        torch.stack(sums, 1) for sums in zip(*nodes, strict=True)
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
