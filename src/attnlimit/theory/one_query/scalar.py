"""How wrong is one number made of attention's output, when keys are kept by chance?

For a direction g the numbers are x_j = <g, v_j>, a query's own: their average under softmax is
<g, Gamma>, and its error over the kept keys is what the output's error is along g.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from attnlimit.theory.one_query.first_order import key_variances
from attnlimit.theory.one_query.kept import TOLERANCE, chances, scalars, thinned
from attnlimit.theory.one_query.quadrature import check_weights
from attnlimit.theory.one_query.sampled import by_blocks, checked


class ScalarLaw(NamedTuple):
    """Error of the average of scalars over the kept keys, at each query."""

    bias: Tensor  # (..., R)
    mse: Tensor  # (..., R)


def scalar_law(
    scores: ArrayLike | Tensor,
    values: ArrayLike | Tensor,
    chance: ArrayLike | Tensor,
    *,
    weighted: bool = True,
) -> ScalarLaw:
    """Exact bias and mean squared error of scalars averaged over keys that are kept by chance.

    Parameters
    ----------
    scores : (R, N) array or tensor
        Scores of R queries on N keys; -inf where a key is not visible.
    values : (..., R, N) array or tensor
        The scalars of each query's keys; several sets of them share the work.
    chance : (N,) or (R, N) array or tensor
        Probability that each key is kept; at least one must be 1 at every query.
    weighted : bool
        Whether a kept key's weight is divided by its chance.
    """
    rows, numbers = (found.double() for found in checked(scores, values, scalars=True))
    keep = chances(rows, chance)
    output = (torch.softmax(rows, 1) * numbers).sum(-1)

    def some(part: slice) -> tuple[Tensor, ...]:
        moments = scalars(output[..., part], numbers[..., part, :])
        return thinned(rows[part], keep[part], weighted, moments)

    mse, bias, _, total = by_blocks(some, *rows.shape)
    check_weights(total, TOLERANCE)
    return ScalarLaw(bias, mse)


def first_order_scalar_variance(
    scores: ArrayLike | Tensor, values: ArrayLike | Tensor, chance: ArrayLike | Tensor
) -> Tensor:
    """sum_j (1/p_j - 1) P_j^2 (x_j - mean)^2, P the softmax: the error if few keys matter little.

    The first order in 1/n of `scalar_law` with weighted keys; arguments and shapes as there.
    """
    rows, numbers = (found.double() for found in checked(scores, values, scalars=True))
    keep = chances(rows, chance)
    weights = torch.softmax(rows, 1)
    shift = numbers - (weights * numbers).sum(-1, keepdim=True)
    odds = torch.where(keep > 0, 1 / keep - 1, 0.0)
    return key_variances(weights, odds, shift.square()).sum(-1)
