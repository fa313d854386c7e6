"""Sampling without replacement: the exact error of attention over m distinct keys and a kept set.

A uniform subset of m of the R keys that are not kept is independent keeping, conditioned on its
size. With z on the circle marking each sampled key (`attnlimit.theory.circle`), E[f z^size] is
the product law of `attnlimit.theory.one_query.kept` with p e^{-w} replaced by p z e^{-w}
(docs/theory/schemes.md).
"""

from __future__ import annotations

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.theory.circle import circle
from attnlimit.theory.one_query.kept import TOLERANCE, thinned, vectors
from attnlimit.theory.one_query.quadrature import check_weights
from attnlimit.theory.one_query.sampled import SamplerLaw, certain_law, checked


def subset_law(
    scores: ArrayLike | Tensor,
    values: ArrayLike | Tensor,
    size: int,
    kept: ArrayLike | Tensor | None = None,
    *,
    weighted: bool = False,
) -> SamplerLaw:
    """Error of attention over the kept keys and `size` distinct others, for each query.

    Parameters
    ----------
    scores : (R, N) array or tensor
        Scores of R queries on N keys; -inf where a key is not visible.
    values : (N, d_v) array or tensor
    size : int
        Keys sampled among those visible and not kept; all of them where there are fewer.
    kept : (N,) or (R, N) boolean array, optional
        Keys kept for sure; none by default.
    weighted : bool
        Whether sampled keys are weighted by the inverse of their chance.
    """
    rows, points = (found.double() for found in checked(scores, values))
    count = checks.count(size, "size", smallest=0)
    visible = rows > -torch.inf
    sure = torch.zeros_like(visible)
    if kept is not None:
        sure = torch.as_tensor(kept, dtype=torch.bool).expand(rows.shape) & visible
    if count == 0 and not sure.any(1).all():
        raise BadInput("a query keeps no key at all; leave it out or sample some.")
    rest = (visible & ~sure).sum(1, keepdim=True).double()
    chance = torch.where(sure, 1.0, (count / rest.clamp_min(1)).clamp_max(1.0)) * visible
    law = certain_law(rows, points, chance, weighted)  # where nothing is random
    total = torch.ones(len(rows), dtype=torch.double)
    for row in torch.nonzero((chance % 1).any(1)).ravel().tolist():
        seen = visible[row]
        law.mse[row], law.bias[row], law.participation[row], total[row] = _random(
            rows[row, seen], points[seen], chance[row, seen], count, weighted
        )
    check_weights(total, TOLERANCE)
    return law


def _random(
    scores: Tensor, values: Tensor, chance: Tensor, sample: int, weighted: bool
) -> tuple[float, Array, float, float]:
    """Mean squared error, bias, participation and sum of the weights for one query."""
    free = chance < 1
    mark, weight = circle(int(free.sum()), sample)
    turn = torch.from_numpy(weight)
    marks = torch.where(free, torch.from_numpy(mark)[:, None], 1.0)
    output = torch.softmax(scores[None], 1) @ values
    sums = thinned(scores[None], chance[None], weighted, vectors(output, values), marks)
    mse, bias, participation, total = ((turn * found).sum(-1).real.numpy() for found in sums)
    return float(mse), bias, float(participation), float(total)
