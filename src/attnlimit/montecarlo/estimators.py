"""What does one draw say about a statistic? Unbiased values, and controls whose mean is known.

Only the first q of the n tokens need be asked as queries: tokens are exchangeable, so averages over
pairs of distinct queries estimate the squared error over all n without bias (eq. 2 of
docs/montecarlo.md). With q = n the values are the statistics themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.montecarlo.reference import Moment, Reference

SQUARED = ("mean", "covariance", "moment")
NORMS = ("mean_norm", "covariance_norm", "covariance_operator_norm")


@dataclass(frozen=True)
class Prefix:
    """Everything about the first n tokens of a batch of draws (leading axis B).

    Outputs and limits are those of the first q tokens as `queries`, less the mean of the limit;
    `token_mean` and `second` are moments of all n tokens, `effects` (B, 0 or 1) what they do one by
    one.
    """

    n: int
    outputs: Tensor
    limits: Tensor
    limit_mean: Tensor
    features: Tensor
    scalars: Tensor
    token_mean: Tensor
    second: Tensor
    queries: Tensor
    effects: Tensor

    @property
    def asked(self) -> int:
        """How many queries were asked, q."""
        return self.outputs.shape[1]


def times(stack: Tensor, matrix: Tensor) -> Tensor:
    """Multiply each matrix of a stack (B, m, k) by the same (k, l), one product a draw.

    Folded into a single product, the last bit would depend on how many draws there are.
    """
    return torch.bmm(stack, matrix.expand(len(stack), -1, -1))


def paired(first: Tensor, second: Tensor, n: int) -> Tensor:
    """Estimate <mean first, mean second> over all n tokens from the q rows given (B, q, v).

    (1 - 1/n) times the average over pairs of distinct rows, plus 1/n times that over single rows.
    """
    rows = first.shape[1]
    sums = (first.sum(1) * second.sum(1)).sum(-1)
    singles = (first * second).sum((1, 2))
    if rows == n:
        return sums / n**2
    return (1 - 1 / n) * (sums - singles) / (rows * (rows - 1)) + singles / (rows * n)


def mean_square(prefix: Prefix) -> Tensor:
    """|m_n - m|^2, unbiased."""
    return paired(prefix.outputs, prefix.outputs, prefix.n)


def mean_gram(prefix: Prefix) -> Tensor:
    """Inner products of the mean output and the mean features: (B, J + 1, J + 1)."""
    vectors = torch.cat([prefix.outputs.mean(1, keepdim=True), prefix.features], dim=1)
    return vectors @ vectors.transpose(1, 2)


def mean_zeros(prefix: Prefix) -> Tensor:
    """What asking q instead of n queries does to the limit outputs, whose mean over n is known.

    Two quantities of mean zero, (B, 2); none when every token is asked.
    """
    if prefix.asked == prefix.n:
        return prefix.outputs.new_zeros((len(prefix.outputs), 0))
    whole = prefix.limit_mean
    cross = 2 * (prefix.outputs.mean(1) * whole).sum(-1)
    cross -= 2 * paired(prefix.outputs, prefix.limits, prefix.n)
    square = paired(prefix.limits, prefix.limits, prefix.n) + (whole**2).sum(-1)
    square -= 2 * (prefix.limits.mean(1) * whole).sum(-1)
    return torch.stack([cross, square], dim=1)


def mean_norm(prefix: Prefix) -> Tensor:
    """|m_n - m|; with q < n, the root of the unbiased square, corrected for its query noise."""
    square = mean_square(prefix)
    if prefix.asked == prefix.n:
        return square.sqrt()
    rows = prefix.asked
    mean = prefix.outputs.mean(1, keepdim=True)
    centred = prefix.outputs - mean
    along = (centred * mean).sum(-1).var(1)
    scatter = centred.transpose(1, 2) @ centred / rows
    noise = (1 - rows / prefix.n) * (4 * along / rows + 2 * (scatter**2).sum((1, 2)) / rows**2)
    root = square.clamp_min(1e-300).sqrt()
    return root * (1 + (noise / (8 * square.clamp_min(1e-300) ** 2)).clamp_max(0.25))


@dataclass(frozen=True)
class CovarianceEstimator:
    """|Cov_n - Cov|^2 and its controls, for a reference covariance C."""

    covariance: Tensor
    score: Tensor
    value: Tensor
    linear: tuple[tuple[Tensor, Tensor], ...]
    second_mean: Tensor
    directions: tuple[Tensor, ...]
    square_mean: float
    scalar_means: Tensor

    def difference(self, prefix: Prefix) -> Tensor:
        """Cov_n - Cov when every token is asked: (B, v, v)."""
        mean = prefix.outputs.mean(1)
        second = prefix.outputs.transpose(1, 2) @ prefix.outputs / prefix.asked
        return second - mean[:, :, None] * mean[:, None, :] - self.covariance

    def operator_norm(self, prefix: Prefix) -> Tensor:
        """|Cov_n - Cov| as an operator, when every token is asked."""
        return torch.linalg.matrix_norm(self.difference(prefix), 2)

    def square(self, prefix: Prefix) -> Tensor:
        """|Cov_n - Cov|_F^2, unbiased for q < n up to a part in q n."""
        if prefix.asked == prefix.n:
            return (self.difference(prefix) ** 2).sum((1, 2))
        return self._square_from(prefix.outputs, prefix.n)

    def _square_from(self, rows: Tensor, n: int) -> Tensor:
        """Estimate the squared error of the covariance of n outputs from q of them (B, q, v).

        The squared norm of a covariance has an unbiased estimate from q rows (Himeno and Yamada
        2014) that is the same, on average, for all n of them; from it follows that of the n rows.
        """
        q = rows.shape[1]
        centred = rows - rows.mean(1, keepdim=True)
        scatter = centred.transpose(1, 2) @ centred / (q - 1)
        trace = torch.diagonal(scatter, dim1=1, dim2=2).sum(-1) ** 2
        fourth = ((centred**2).sum(-1) ** 2).sum(1) / (q - 1)
        square = (scatter**2).sum((1, 2))
        inherited = (q - 1) * ((q - 1) * (q - 2) * square + trace - q * fourth)
        inherited = inherited / (q * (q - 2) * (q - 3))
        over_all = inherited * n * (n - 2) * (n - 3) / (n - 1) - trace + n * fourth
        over_all = over_all / ((n - 1) * (n - 2))
        shrink = (n - 1) / n
        overlap = (scatter * self.covariance).sum((1, 2))
        return shrink**2 * over_all - 2 * shrink * overlap + (self.covariance**2).sum()

    def stand_in(self, prefix: Prefix) -> Tensor:
        """What asking q instead of n queries does to diffuse attention, x -> V S^ A x.

        S^ is the covariance of all n tokens. The error of this map over all of them is known, so
        that its estimate from q queries, less that, has mean zero and the noise of the queries.
        """
        spread = prefix.second - prefix.token_mean[:, :, None] * prefix.token_mean[:, None, :]
        maps = times(self.value @ spread, self.score)
        error = maps @ spread @ maps.transpose(1, 2) - self.covariance
        rows = prefix.queries @ maps.transpose(1, 2)
        return self._square_from(rows, prefix.n) - (error**2).sum((1, 2))

    def controls(self, prefix: Prefix) -> Tensor:
        """Quantities of mean zero, functions of the tokens alone: (B, Z), the best ones first."""
        gap = prefix.second - self.second_mean
        columns = []
        if self.linear:
            moved = torch.zeros_like(gap[:, :1, :1])
            for left, right in self.linear:
                moved = moved + times(left @ gap, right)
            columns.append((moved**2).sum((1, 2)) - self.square_mean / prefix.n)
        columns += list(prefix.effects.unbind(dim=1))
        if self.linear and prefix.asked < prefix.n:
            columns.append(self.stand_in(prefix))
            known = prefix.queries
            asked = known.transpose(1, 2) @ known / prefix.asked - prefix.second
            columns += [(asked * direction).sum((1, 2)) for direction in self.directions]
        columns += list((prefix.scalars - self.scalar_means).unbind(dim=1))
        if not columns:
            return gap.new_zeros((len(gap), 0))
        return torch.stack(columns, dim=1)


def covariance_estimator(
    reference: Reference, A: Array, V: Array, cov: Array | None, scalar_means: Array
) -> CovarianceEstimator:
    """Return the estimator; `cov` is the covariance of centred Gaussian tokens, else None.

    For those, S_n moves with the tokens' second moment D = S^ - S like V(D A S A' S + S A D A' S +
    S A S A' D)V' where attention is diffuse, a control whose mean square is known.
    """
    covariance = torch.from_numpy(reference.covariance)
    means = torch.from_numpy(scalar_means)
    score, value = torch.from_numpy(A), torch.from_numpy(V)
    if cov is None:
        none = covariance.new_zeros(())
        return CovarianceEstimator(covariance, score, value, (), none, (), 0.0, means)
    middle = A @ cov @ A.T
    factors = [(V, middle @ cov @ V.T), (V @ cov @ A, A.T @ cov @ V.T), (V @ cov @ middle, V.T)]
    limit = V @ cov @ A
    directions = [limit.T @ reference.covariance @ limit, limit.T @ V @ cov @ V.T @ limit]
    return CovarianceEstimator(
        covariance,
        score,
        value,
        tuple((torch.from_numpy(left), torch.from_numpy(right)) for left, right in factors),
        torch.from_numpy(cov),
        tuple(torch.from_numpy(direction) for direction in directions),
        _wishart_square(factors, cov),
        means,
    )


def _wishart_square(factors: list[tuple[Array, Array]], cov: Array) -> float:
    """n E |sum_k P_k D Q_k|_F^2 for D = S^ - S of n centred Gaussian vectors of covariance S."""
    total = 0.0
    for left, right in factors:
        for other_left, other_right in factors:
            total += np.trace(left @ cov @ other_left.T) * np.trace(right.T @ cov @ other_right)
            total += float(((left @ cov @ other_right) * (other_left @ cov @ right)).sum())
    return float(total)


def moment_square(prefix: Prefix, moment: Moment, centre: Array, target: Array) -> Tensor:
    """|average of moment(outputs) - its limit|^2, unbiased."""
    outputs = prefix.outputs.numpy() + centre
    values = np.asarray(moment(outputs), dtype=np.float64) - target
    rows = torch.from_numpy(values.reshape(*values.shape[:2], -1))
    return paired(rows, rows, prefix.n)
