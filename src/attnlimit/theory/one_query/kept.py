"""Keys kept by chance: error of attention over them, before any is drawn.

Key j is kept independently with probability p_j, with score weight c_j = e^{s_j} / p_j (weighted:
the denominator is unbiased) or e^{s_j}; p_j = 1 for a sink, a window or a top key. With
w_j = t c_j and r_j = p_j e^{-w_j} / (1 - p_j + p_j e^{-w_j}),

    E Gamma~ - Gamma     = int sum_j c_j u_j r_j P(t) dt,   P(t) = prod_j (1 - p_j + p_j e^{-w_j}),
    E |Gamma~ - Gamma|^2 = int t [ sum_j c_j^2 |u_j|^2 r_j (1-r_j) + |sum_j c_j u_j r_j|^2 ] P dt

where u_j is the key's value less the output over all keys (docs/theory/schemes.md). A uniform
subset of m of R keys is independent keeping with p = m / R, given that m are kept. With
z = e^{i theta} marking each kept key, E[f; size = m] is the average over theta of
e^{-im theta} E[f z^size]: the same law with p e^{-w} replaced by p z e^{-w}.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.theory.limit import check_match
from attnlimit.theory.one_query.quadrature import (
    START,
    STEP,
    check_weights,
    lowest_alpha,
    start_weights,
    times_between,
)
from attnlimit.theory.one_query.sampled import (
    SamplerLaw,
    by_blocks,
    certain_law,
    checked,
    squared_distance,
)
from attnlimit.tokens import Tokens

TOLERANCE = 1e-4
_MARGIN = 11.0  # log of how far above its mean a denominator may come, over START
_DEPTH = 30.0
_SPREAD = 9.0  # deviations of a subset's size that are told apart: others have a chance of e^-40

Complex = NDArray[np.complex128]


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

    Examples
    --------
    >>> import numpy as np, attnlimit as al
    >>> keys = al.Empirical(np.eye(3))
    >>> al.kept_error(al.Head(np.eye(3)), keys, [1.0, 0.0, 0.0], [1.0, 0.5, 0.5]).mse.round(4)
    array([0.1233])
    """
    check_match(head, tokens)
    atoms = tokens.atoms()
    if atoms is None:
        raise BadInput(f"kept_error needs finitely many tokens (al.Empirical), got {tokens!r}.")
    points, weights = atoms
    tilts = np.atleast_2d(head.tilts(x))
    with np.errstate(divide="ignore"):
        scores = tilts @ points.T + np.log(weights)
    return kept_law(scores, points @ head.V.T, probabilities, weighted=weighted)


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
    rows, points = (given.double() for given in checked(scores, values))
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
    if not isinstance(probabilities, Tensor):
        probabilities = torch.from_numpy(checks.floats(probabilities, "probabilities"))
    keep = probabilities.double()
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


Moments = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From weights (m, N): sum_j first_j u_j, (..., m), and its square plus sum_j left_j |u_j|^2."""


class Sums(NamedTuple):
    """The integrals, queries last; complex where keys are marked."""

    mse: Tensor
    bias: Tensor
    participation: Tensor
    total: Tensor  # of the weights: one, but for errors of the quadrature


def vectors(output: Tensor, values: Tensor) -> Moments:
    """Moments for values (N, d_v) that all queries share, and their outputs (m, d_v)."""
    distance = squared_distance(output, values)
    extended = torch.cat([values, torch.ones_like(values[:, :1])], dim=1)

    def moments(first: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        sums = first @ extended.to(first.dtype)
        pull = sums[:, :-1] - sums[:, -1:] * output
        return pull.T, (left * distance).sum(-1) + (pull * pull).sum(-1)

    return moments


def scalars(output: Tensor, values: Tensor) -> Moments:
    """Moments for numbers (..., m, N) of each query's own, and their means (..., m)."""
    shift = values - output[..., None]
    energy = shift.square()

    def moments(first: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        pull = (first * shift).sum(-1)
        return pull, (left * energy).sum(-1) + pull * pull

    return moments


def thinned(
    scores: Tensor, keep: Tensor, weighted: bool, moments: Moments, marks: Tensor | None = None
) -> Sums:
    """Integrals over t for queries whose scores are (m, N), keys kept with chances `keep`.

    `weighted` divides the weight of a kept key by its chance. `marks` (m, N) on the unit circle
    multiply the chance of each key to be there: E[f prod_j marks_j] over the kept keys.
    """
    log_weight = scores - torch.log(keep) if weighted else scores
    log_weight = log_weight.masked_fill(keep == 0, -torch.inf)
    # Divide by the expected denominator, so that all queries share their range of t.
    centre = torch.logsumexp(log_weight + torch.log(keep), -1, keepdim=True)
    cost = torch.exp(log_weight - centre)

    def negligible(alpha: float) -> bool:
        w = cost * math.exp(-alpha)
        lost = torch.log1p(torch.expm1(-w).mul_(keep).clamp_min_(-1 + 1e-16)).sum(-1)
        return float(lost.max()) < -_DEPTH or float(w.min()) > _DEPTH

    largest = float(cost.sum(-1).max())  # denominator: all keys kept
    late = min(math.log(largest / START), _MARGIN)
    times = times_between(late, lowest_alpha(negligible, 0.0), STEP)
    steps = [STEP * start_weights(len(times), power) for power in (1, 2)]
    sure = keep == 1
    sums: tuple[Tensor, ...] = ()
    for t, once, twice in zip(times.tolist(), *(each.tolist() for each in steps), strict=True):
        w = cost * t
        if marks is None:
            gone = torch.expm1(-w).mul_(keep)  # p (e^-w - 1)
            chance = torch.exp(torch.log1p(gone).sum(-1))
            alive, factor = gone + keep, 1 + gone
        else:
            alive = keep * torch.exp(-w) * marks  # p z e^-w
            factor = (1 - keep) + alive
            chance = torch.prod(factor, -1)  # where it underflows, nothing is left
        first = (alive / factor).masked_fill_(sure, 1.0).mul_(w)
        second = first * w
        pull, inner = moments(first, second - first * first)
        linear, square = once * chance, twice * chance
        parts = square * inner, linear * pull, square * second.sum(-1), linear * first.sum(-1)
        sums = tuple(map(torch.add, sums, parts)) if sums else parts
    return Sums(*sums)


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
    rows, numbers = (given.double() for given in checked(scores, values, scalars=True))
    keep = chances(rows, chance)
    output = (torch.softmax(rows, 1) * numbers).sum(-1)

    def some(part: slice) -> tuple[Tensor, ...]:
        moments = scalars(output[..., part], numbers[..., part, :])
        return thinned(rows[part], keep[part], weighted, moments)

    mse, bias, _, total = by_blocks(some, *rows.shape)
    check_weights(total, TOLERANCE)
    return ScalarLaw(bias, mse)


def circle(rest: int, sample: int) -> tuple[Complex, Complex]:
    """Nodes z, and weights such that E[f | size] is the real part of sum weight E[f z^size].

    `sample` keys of `rest`. Half of the circle counts for both halves.
    """
    share = sample / max(rest, 1)
    apart = 2 * int(np.ceil(_SPREAD * np.sqrt(rest * share * (1 - share)) / 2)) + 8
    nodes = min(rest + 1, apart)
    mark = np.exp(2j * np.pi * np.arange(nodes // 2 + 1) / nodes)
    fold = np.full(len(mark), 2.0)
    fold[0] = 1.0  # the ends are their own mirror images
    if nodes % 2 == 0:
        fold[-1] = 1.0
    return mark, mark.conj() ** sample * fold / (nodes * binom.pmf(sample, rest, share))


def subset_law(scores: ArrayLike | Tensor, values: ArrayLike | Tensor, size: int) -> SamplerLaw:
    """Error of attention over `size` distinct keys of those visible, or all where there are fewer.

    Parameters
    ----------
    scores : (R, N) array or tensor
        Scores of R queries on N keys; -inf where a key is not visible.
    values : (N, d_v) array or tensor
    """
    rows, points = (given.double() for given in checked(scores, values))
    visible = rows > -torch.inf
    count = checks.count(size, "size")
    chance = (count / visible.sum(1, keepdim=True).double()).clamp_max(1.0) * visible
    law = certain_law(rows, points, chance, weighted=False)  # where nothing is random
    total = torch.ones(len(rows), dtype=torch.double)
    for row in torch.nonzero((chance % 1).any(1)).ravel().tolist():
        seen = visible[row]
        key_scores, key_values = rows[row, seen][None], points[seen]
        mark, weight = (torch.from_numpy(each) for each in circle(len(key_values), count))
        moments = vectors(torch.softmax(key_scores, 1) @ key_values, key_values)
        marks = mark[:, None].expand(-1, len(key_values))
        sums = thinned(key_scores, chance[row, seen][None], False, moments, marks)
        mse, bias, participation, weight_sum = (
            (weight * each).sum(-1).real.numpy() for each in sums
        )
        law.mse[row], law.bias[row], law.participation[row] = mse, bias, participation
        total[row] = float(weight_sum)
    check_weights(total, TOLERANCE)
    return law
