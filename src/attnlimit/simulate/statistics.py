"""Statistics of one draw: squared errors of the mean and the covariance.

Errors are taken against the infinite-token limits (`limit_reference`), never a large sample. Only
the first q of the n tokens need be queries: tokens are exchangeable, so that averages over pairs of
distinct queries estimate the squared error over all n without bias (docs/montecarlo.md). With
q = n the values are the statistics themselves.

Control variates: functions of the tokens alone whose means are known in closed form.

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
from attnlimit.theory.limit import limit
from attnlimit.tokens import Tokens

SQUARED = ("mean", "covariance")
NORMS = ("mean_norm", "covariance_norm")
POINTS = 1 << 14
SCRAMBLES = 8


@dataclass(frozen=True)
class Reference:
    """Mean and covariance of the limit output over queries drawn like the tokens.

    `mean_error` and `covariance_error` bound what quadrature leaves (norm and Frobenius norm);
    both are zero where a closed form exists.
    """

    mean: Array
    covariance: Array
    mean_error: float
    covariance_error: float


def limit_reference(head: Head, tokens: Tokens) -> Reference:
    """Mean and covariance of the limit output.

    Gaussian tokens N(m, S): Gamma(x) = V (m + S A x), of mean V (m + S A m) and covariance
    V S A S A' S V'. Other tokens: the limit map is exact, and its average over queries is a
    quasi-Monte Carlo sum over scrambled Sobol points, whose scrambles give the error. The mean is
    zero for symmetric tokens.
    """
    if tokens.is_gaussian:
        mean, cov = tokens.mean(), tokens.cov()
        linear = head.V @ cov @ head.A
        centre = head.V @ (mean + cov @ head.A @ mean)
        return Reference(centre, linear @ cov @ linear.T, 0.0, 0.0)
    means, covariances = [], []
    finite = tokens.atoms() is not None
    for seed in range(1 if finite else SCRAMBLES):
        points, weights = tokens.rule(POINTS, seed)
        outputs = limit(head, tokens)(points)
        mean = np.zeros(head.value_dim) if tokens.symmetric else weights @ outputs
        centred = outputs - mean
        means.append(mean)
        covariances.append((weights * centred.T) @ centred)
    errors = (0.0, 0.0) if finite else (_scatter(means), _scatter(covariances))
    return Reference(np.mean(means, axis=0), np.mean(covariances, axis=0), *errors)


def _scatter(estimates: list[Array]) -> float:
    """Two standard errors of the average of independent scrambles, as a norm."""
    deviations = np.std(np.asarray(estimates), axis=0, ddof=1)
    return float(2 * np.linalg.norm(deviations) / np.sqrt(len(estimates)))


@dataclass(frozen=True)
class Prefix:
    """The first n tokens of a batch of draws (leading axis B).

    `outputs` (B, q, d_v) are those of the first q tokens as queries, less the mean of the limit;
    `token_mean` and `second` are the first two moments of all n tokens about their true mean.
    """

    n: int
    outputs: Tensor
    token_mean: Tensor
    second: Tensor

    @property
    def queries(self) -> int:
        """Number of queries, q."""
        return self.outputs.shape[1]


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


def mean_norm(prefix: Prefix) -> Tensor:
    """|m_n - m|; with q < n, the root of the unbiased square, corrected for its query noise."""
    square = mean_square(prefix)
    if prefix.queries == prefix.n:
        return square.sqrt()
    rows = prefix.queries
    mean = prefix.outputs.mean(1, keepdim=True)
    centred = prefix.outputs - mean
    along = (centred * mean).sum(-1).var(1)
    scatter = centred.transpose(1, 2) @ centred / rows
    noise = (1 - rows / prefix.n) * (4 * along / rows + 2 * (scatter**2).sum((1, 2)) / rows**2)
    root = square.clamp_min(1e-300).sqrt()
    return root * (1 + (noise / (8 * square.clamp_min(1e-300) ** 2)).clamp_max(0.25))


def expected_sums(size: int) -> Array:
    """Mean |S|^2, (tr S)^2 and |y - mean|^4 of rows, S their unbiased covariance, (3, 3).

    Columns are tr C^2, (tr C)^2 and E|y - E y|^4 of the rows' own law, of covariance C. Row i less
    the mean has the weight 1 - 1/size on itself and -1/size on the others.
    """
    pairs, own = 1 / (size * (size - 1)), (1 - 1 / size) ** 4 + (size - 1) / size**4
    two = (1 - 1 / size) ** 2 - own
    return np.array([
        [1 - 1 / size + pairs, pairs, 1 / size],
        [2 * pairs, 1 - 1 / size, 1 / size],
        [2 * two, two, own],
    ])  # fmt: skip


def covariance_square(prefix: Prefix, covariance: Tensor) -> Tensor:
    """|Cov_n - Cov|_F^2; for q < n an unbiased estimate.

    Unbiased estimates from q rows of what `expected_sums` has in its columns (Himeno and Yamada
    2014) are the same, on average, for all n of them; from them follows |Cov_n|^2.
    """
    if prefix.queries == prefix.n:
        mean = prefix.outputs.mean(1)
        second = prefix.outputs.transpose(1, 2) @ prefix.outputs / prefix.n
        gap = second - mean[:, :, None] * mean[:, None, :] - covariance
        return (gap**2).sum((1, 2))
    rows, n, q = prefix.outputs, prefix.n, prefix.queries
    centred = rows - rows.mean(1, keepdim=True)
    scatter = centred.transpose(1, 2) @ centred / (q - 1)
    trace = torch.diagonal(scatter, dim1=1, dim2=2).sum(-1) ** 2
    fourth = ((centred**2).sum(-1) ** 2).mean(1)
    square = (scatter**2).sum((1, 2))
    of_square, of_trace, of_fourth = np.linalg.solve(expected_sums(q).T, expected_sums(n)[0])
    over_all = of_square * square + of_trace * trace + of_fourth * fourth
    shrink = (n - 1) / n
    overlap = (scatter * covariance).sum((1, 2))
    return shrink**2 * over_all - 2 * shrink * overlap + (covariance**2).sum()


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
