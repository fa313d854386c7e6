"""Keep some keys, sample the rest: the exact error of any such scheme, before it is run.

Key j is kept independently with probability p_j, with score weight e^{s_j} / p_j (weighted: the
denominator is unbiased) or e^{s_j}; p_j = 1 for a sink, a window or a top key
(docs/theory/schemes.md).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.theory.law.quadrature import check_weights
from attnlimit.theory.law.sampled import SamplerLaw, by_blocks, checked
from attnlimit.theory.law.thinning import TOLERANCE, thinned, vectors
from attnlimit.theory.limit import check_match
from attnlimit.tokens import Empirical, Tokens


def kept_error(
    head: Head, tokens: Tokens, x: ArrayLike, probabilities: ArrayLike, *, weighted: bool = True
) -> SamplerLaw:
    """Exact error of attention when each of finitely many tokens is kept with a probability.

    Parameters
    ----------
    tokens : Empirical
        The keys; their weights count as multiplicities.
    x : (m, d) array
        Queries.
    probabilities : (N,) or (m, N) array
        Probability that each key is kept, for all queries or for each. At least one must be 1
        at every query: with nothing kept there is no attention.
    weighted : bool
        Whether a kept key's weight is divided by its probability (an unbiased denominator).
    """
    check_match(head, tokens)
    if not isinstance(tokens, Empirical):
        raise BadInput(f"kept_error needs finitely many tokens (al.Empirical), got {tokens!r}.")
    tilts = np.atleast_2d(head.tilts(x))
    with np.errstate(divide="ignore"):
        scores = tilts @ tokens.locations.T + np.log(tokens.weights)
    return kept_law(scores, tokens.locations @ head.V.T, probabilities, weighted=weighted)


def kept_law(
    scores: ArrayLike | Tensor,
    values: ArrayLike | Tensor,
    probabilities: ArrayLike | Tensor,
    *,
    weighted: bool = True,
) -> SamplerLaw:
    """Error of a scheme for many queries at once, from their scores (R, N) and the values (N, d_v).

    `probabilities` is (N,) or (R, N); keys with score -inf are not visible and never kept.
    """
    rows, points = (found.double() for found in checked(scores, values))
    keep = chances(rows, probabilities)
    output = torch.softmax(rows, 1) @ points

    def some(part: slice) -> tuple[Tensor, ...]:
        return thinned(rows[part], keep[part], weighted, vectors(output[part], points))

    mse, bias, participation, total = by_blocks(some, *rows.shape)
    check_weights(total, TOLERANCE)
    return SamplerLaw(
        mse.numpy(), bias.T.numpy(), participation.numpy(), keep.sum(1).numpy(), output.numpy(),
        weighted,
    )  # fmt: skip


def chances(rows: Tensor, probabilities: ArrayLike | Tensor) -> Tensor:
    """Chances (R, N) of the keys, none for invisible ones; at least one must be 1."""
    keep = torch.as_tensor(probabilities).double()
    if tuple(keep.shape) not in (tuple(rows.shape), (rows.shape[1],)):
        raise BadInput(
            f"probabilities must have shape {(rows.shape[1],)} or {tuple(rows.shape)}, "
            f"got {tuple(keep.shape)}."
        )
    if not ((keep >= 0) & (keep <= 1)).all():
        raise BadInput("probabilities must lie between 0 and 1.")
    keep = keep.expand(rows.shape).masked_fill(rows == -torch.inf, 0.0)
    if not (keep == 1).any(1).all():
        raise BadInput(
            "at every query at least one visible key must be kept for sure (probability 1): "
            "with nothing kept there is no attention."
        )
    return keep
