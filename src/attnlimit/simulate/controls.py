"""Control variates: functions of the tokens alone whose means are known in closed form.

Where attention is diffuse, outputs move with the tokens' mean and covariance: the mean output
with V(ybar - m) and, for Gaussian tokens of covariance S, with VSA(ybar - m); the outputs'
covariance with V(D A S A' S + S A D A' S + S A S A' D)V', D the error of the tokens' covariance.
Squares and products of these have known means, which `attnlimit.simulate.summary` checks in every
measurement.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.simulate.statistics import Prefix
from attnlimit.tokens import Tokens


@dataclass(frozen=True)
class Controls:
    """Linear maps of the tokens' moments, and n times the means of their products."""

    linear: tuple[Tensor, ...]  # (d, d_v) each, of the tokens' mean
    products: tuple[tuple[int, int, float], ...]  # pairs of `linear`, and n times their means
    factors: tuple[tuple[Tensor, Tensor], ...]  # of the tokens' covariance; () where not Gaussian
    cov: Tensor
    square: float  # n times the mean square of what the factors make of it

    @staticmethod
    def of(head: Head, tokens: Tokens) -> Controls:
        """The controls of a head with these tokens."""
        A, V, cov = head.A, head.V, tokens.cov()
        maps = [V]
        factors: list[tuple[Array, Array]] = []
        if tokens.is_gaussian:
            maps.append(V @ cov @ A)
            middle = A @ cov @ A.T
            factors = [
                (V, middle @ cov @ V.T),
                (V @ cov @ A, A.T @ cov @ V.T),
                (V @ cov @ middle, V.T),
            ]
        pairs = [(j, k) for j in range(len(maps)) for k in range(j + 1)]
        return Controls(
            tuple(torch.from_numpy(np.ascontiguousarray(matrix.T)) for matrix in maps),
            tuple((j, k, float(((maps[j] @ cov) * maps[k]).sum())) for j, k in pairs),
            tuple((torch.from_numpy(left), torch.from_numpy(right)) for left, right in factors),
            torch.from_numpy(cov),
            wishart_square(factors, cov),
        )

    def of_mean(self, prefix: Prefix) -> Tensor:
        """Products of the linear maps of the tokens' mean, less their means: (B, Z)."""
        vectors = [_times(prefix.token_mean[:, None], linear)[:, 0] for linear in self.linear]
        columns = [
            (vectors[j] * vectors[k]).sum(-1) - mean / prefix.n for j, k, mean in self.products
        ]
        return torch.stack(columns, dim=1)

    def of_covariance(self, prefix: Prefix) -> Tensor:
        """The squared change for diffuse attention, less its mean: (B, 1), or (B, 0)."""
        if not self.factors:
            return prefix.second.new_zeros((len(prefix.second), 0))
        gap = prefix.second - self.cov
        # gap is symmetric, so that gap left' is the transpose of left gap.
        moved = sum(
            (_times(_times(gap, left.T).transpose(1, 2), right) for left, right in self.factors),
            torch.zeros(()),
        )
        return ((moved**2).sum((1, 2)) - self.square / prefix.n)[:, None]


def _times(stack: Tensor, matrix: Tensor) -> Tensor:
    """Multiply each matrix of a stack (B, m, k) by the same (k, l), one product for each draw.

    Folded into one product, the last bit would depend on how many draws there are.
    """
    return torch.bmm(stack, matrix.expand(len(stack), -1, -1))


def wishart_square(factors: list[tuple[Array, Array]], cov: Array) -> float:
    """n E |sum_k P_k D Q_k|_F^2 for D = S^ - S of n centred Gaussian vectors of covariance S."""
    total = 0.0
    for left, right in factors:
        for other_left, other_right in factors:
            total += np.trace(left @ cov @ other_left.T) * np.trace(right.T @ cov @ other_right)
            total += float(((left @ cov @ other_right) * (other_left @ cov @ right)).sum())
    return float(total)
