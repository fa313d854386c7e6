"""Arguments and result of the laws of sampled keys: scores and values, errors by query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result, table

BLOCK = 1 << 16
"""Scores that are worked on at a time."""

_NEAR = 1e-6


@dataclass(frozen=True, eq=False)
class SamplerLaw(Result, Pictured):
    """Error of attention over the keys that are kept, at each query."""

    mse: Array  # (m,)  E |Gamma~ - Gamma|^2
    bias: Array  # (m, d_v)  E Gamma~ - Gamma
    participation: Array  # (m,)  E sum_i p_i^2 of the weights used
    kept: Array  # (m,)  expected number of keys kept
    output: Array  # (m, d_v)  Gamma, over all keys
    weighted: bool

    @property
    def relative(self) -> Array:
        """Root mean square error over the size of the output."""
        return np.sqrt(self.mse) / np.linalg.norm(self.output, axis=1)

    def headline(self) -> str:
        return f"attention over sampled keys ({'' if self.weighted else 'un'}weighted, exact)"

    def panel(self) -> Panel:
        """Relative error of each query against the keys that it keeps."""
        points = Series(self.kept, self.relative, "points")
        return Panel(self.headline(), "keys kept", "relative error of the output", [points])

    def to_frame(self) -> pd.DataFrame:
        """One row for each query."""
        return table(
            query=np.arange(len(self.mse)),
            kept=self.kept,
            mse=self.mse,
            relative=self.relative,
            bias_norm=np.linalg.norm(self.bias, axis=1),
            participation=self.participation,
        )


def checked(
    scores: ArrayLike | Tensor, values: ArrayLike | Tensor, *, scalars: bool = False
) -> tuple[Tensor, Tensor]:
    """Scores (R, N) and values (N, d_v) as tensors, or what is wrong with them.

    With `scalars` the values are numbers of each query, (..., R, N).
    """
    rows, points = (
        given if isinstance(given, Tensor) else torch.from_numpy(checks.floats(given, name))
        for given, name in ((scores, "scores"), (values, "values"))
    )
    if scalars:
        expected, fits = "scalars (..., queries, keys)", points.shape[-2:] == rows.shape
    else:
        expected = "values (keys, d_v)"
        fits = points.dim() == 2 and points.shape[:1] == rows.shape[1:]
    if rows.dim() != 2 or not fits:
        raise BadInput(
            f"scores must be (queries, keys) and {expected}, "
            f"got {tuple(rows.shape)} and {tuple(points.shape)}."
        )
    best = rows.amax(1) if rows.shape[1] else rows.sum(1) - torch.inf  # NaN where there is one
    if torch.isnan(best).any() or (best == torch.inf).any() or not torch.isfinite(points).all():
        raise BadInput("scores or values contain NaN or infinite numbers; remove them first.")
    if (best == -torch.inf).any():
        raise BadInput("a query sees no key at all; leave it out.")
    return rows, points


def squared_distance(output: Tensor, values: Tensor) -> Tensor:
    """|v_j - Gamma_i|^2, (R, N), of values (N, d_v) from outputs (R, d_v), to their last digit.

    By products, and by differences where a key is so near to the output that digits would cancel.
    """
    size = output.square().sum(1, keepdim=True) + values.square().sum(1)
    squares = torch.addmm(size, output, values.T, alpha=-2)
    query, key = (squares < _NEAR * size).nonzero(as_tuple=True)
    squares[query, key] = (values[key] - output[query]).square().sum(1)
    return squares


def certain_law(scores: Tensor, values: Tensor, chance: Tensor, weighted: bool) -> SamplerLaw:
    """The law where every chance is zero or one: nothing is drawn, and the error is a number."""
    output = torch.softmax(scores, 1) @ values
    weights = torch.softmax(scores.masked_fill(chance == 0, -torch.inf), 1)
    error = weights @ values - output
    return SamplerLaw(
        error.square().sum(1).numpy(),
        error.numpy(),
        weights.square().sum(1).numpy(),
        chance.sum(1).double().numpy(),
        output.numpy(),
        weighted,
    )


def by_blocks(
    law: Callable[[slice], tuple[Tensor, ...]], queries: int, keys: int
) -> tuple[Tensor, ...]:
    """Apply a law to some queries at a time and join what it gives; queries are its last axis."""
    size = max(1, BLOCK // keys)
    parts = [law(slice(i, i + size)) for i in range(0, queries, size)]
    return tuple(torch.cat(column, dim=-1) for column in zip(*parts, strict=True))
