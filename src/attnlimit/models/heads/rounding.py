"""What does a capture's precision cost? The rounding of q, k and v, carried through attention.

A number stored with b significant bits is off by an error spread evenly over a unit in its last
place u, of variance u^2 / 12, independent of the others. To first order an output moves by

    scale sum_j p_ij (dq_i.k_j + q_i.dk_j)(v_j - o_i) + sum_j p_ij dv_j

whose mean square is a sum of three variances. It is the rounding of what was captured: the errors
that a pass in low precision gathers before are the model's own, and a pass in float32 shows them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.models.capture.captured import Captured, CapturedHead
from attnlimit.result import Result, table

BITS = {torch.bfloat16: 8, torch.float16: 11, torch.float32: 24, torch.float64: 53}
QUERIES = 64


@dataclass(frozen=True, eq=False)
class Rounding(Result):
    """Relative root mean square error of each head's outputs that rounding makes."""

    dtype: str
    error: Array  # (layers, heads)
    layers: tuple[int, ...]
    queries: int  # of each head that were looked at

    def to_frame(self) -> pd.DataFrame:
        """One row for each head."""
        layer, head = np.asarray(self.layers)[:, None], np.arange(self.error.shape[1])
        return table(layer=layer, head=head, error=self.error)

    def headline(self) -> str:
        """Its middle and its end."""
        worst = divmod(int(self.error.argmax()), self.error.shape[1])
        return (
            f"{self.dtype}: rounding of q, k and v moves a head's outputs by "
            f"{100 * np.median(self.error):.2g} % (median), {100 * self.error.max():.2g} % at most "
            f"(layer {self.layers[worst[0]]}, head {worst[1]}), by the unit in the last place"
        )


def rounding(capture: Captured, *, queries: int = QUERIES) -> Rounding:
    """Relative error of every head's outputs by the rounding of its queries, keys and values.

    By the unit in the last place of each number, carried through attention to first order, at
    `queries` of each head's queries, evenly spread.
    """
    count = checks.count(queries, "queries")
    first = next(iter(capture.layers.values()))
    kind = first.q.dtype
    found = [_error(head, BITS[kind], count) for head in capture]
    error = np.array(found).reshape(len(capture.layers), -1)
    return Rounding(str(kind).removeprefix("torch."), error, tuple(capture.layers), count)


def rounding_remarks(capture: Captured) -> list[str]:
    """Say what rounding does to a capture in half precision; nothing of others."""
    half = next(iter(capture.layers.values())).q.element_size() < 4
    return [rounding(capture).headline()] if half else []


def _error(head: CapturedHead, bits: int, queries: int) -> float:
    size = len(head)
    rows = torch.from_numpy(np.unique(np.linspace(0, size - 1, min(size, queries)).astype(int)))
    scores = head.scores(rows).double()
    weights = torch.softmax(scores, -1)
    q, k, v = head.q[rows].double(), head.k.double(), head.v.double()
    output = weights @ v
    slope = head.scale * weights
    if head.softcap is not None:
        bare = head.scale * q @ k.T
        slope = slope * (1 - torch.tanh(bare / head.softcap).square())
    moved = torch.einsum("rn,nd,nv->rdv", slope, k, v)
    moved -= torch.einsum("rn,nd,rv->rdv", slope, k, output)
    by_query = (_variance(q, bits) * moved.square().sum(-1)).sum(-1)
    distance = torch.cdist(output, v).square()
    by_key = (slope.square() * (q.square() @ _variance(k, bits).T) * distance).sum(-1)
    by_value = weights.square() @ _variance(v, bits).sum(-1)
    total = (by_query + by_key + by_value).mean()
    return float((total / output.square().sum(-1).mean().clamp_min(1e-300)).sqrt())


def _variance(numbers: Tensor, bits: int) -> Tensor:
    """Variance of the rounding of each number to so many significant bits."""
    _, exponent = torch.frexp(numbers)
    unit = torch.ldexp(torch.ones_like(numbers), exponent - bits)
    return torch.where(numbers == 0, 0.0, unit.square() / 12)
