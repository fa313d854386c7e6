"""Horizon, score deviations and effective tokens of captured heads, and influence of their tokens.

With P the attention weights of a head, O = P V its outputs and m their mean, token j moves the mean
output of n resampled tokens by psi_j / n to first order,

    psi_j = O_j - m + (sum_i P_ij) V_j - sum_i P_ij O_i,

so that E|m_n - m|^2 = tr Cov psi / n (docs/theory/real-heads.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.constants import MAX_PARTICIPATION, MAX_SATURATION
from attnlimit.models.captured import Captured, CapturedHead


def horizons(capture: Captured) -> Array:
    """Horizon H = |S^1/2 A S^1/2| of every head, (layers, heads).

    With queries W_q x and keys W_k x of tokens x of covariance S, the squared singular values of
    scale S^1/2 W_k' W_q S^1/2 are the eigenvalues of scale^2 Cov(k) Cov(q): the captured queries
    and keys are enough, and position rotations are part of them.
    """
    values = [head_horizon(head) for head in capture]
    return np.array(values).reshape(len(capture.layers), -1)


def head_horizon(head: CapturedHead) -> float:
    """Horizon of one head."""
    return head.scale * unscaled_horizon(head.q, head.k)


def unscaled_horizon(q: Tensor, k: Tensor) -> float:
    """Square root of the largest eigenvalue of Cov(k) Cov(q), for queries and keys (N, d)."""
    return float(torch.linalg.matrix_norm(_root(k) @ _root(q).T, ord=2))


def _root(tensor: Tensor) -> Tensor:
    """R with R'R = Cov, so that |R_k R_q'| squared is the largest eigenvalue of Cov_k Cov_q."""
    covariance = torch.atleast_2d(torch.cov(tensor.double().T, correction=0))
    values, vectors = torch.linalg.eigh(covariance)
    return values.clamp_min(0).sqrt()[:, None] * vectors.T


def profile(capture: Captured) -> pd.DataFrame:
    """One row for each head.

    Columns: `horizon`; `score_std`, the median over queries of the standard deviation of a
    query's scores; `gaussian`, `stable` and `frozen`, the fractions of queries whose deviation is
    below half of, between half and the whole of, and above sqrt(2 log n) for its n visible keys;
    `effective_tokens`, the median over queries of 1 / sum p^2; `participation`, the mean of
    sum p^2; `first_token`, the mean weight on the first token (a sink, when large).
    """
    return pd.DataFrame([_profile_row(head) for head in capture])


def score_deviations(scores: Tensor) -> tuple[Array, Array]:
    """Deviation of each query's visible scores (R,), and sqrt(2 log n), beyond which it freezes."""
    visible = scores > -torch.inf
    counts = visible.sum(1)
    filled = scores.masked_fill(~visible, 0.0)
    centred = (filled - filled.sum(1, keepdim=True) / counts[:, None]).masked_fill(~visible, 0.0)
    deviation = (centred.square().sum(1) / counts).sqrt().double().numpy()
    return deviation, np.sqrt(2 * np.log(np.maximum(counts.numpy(), 2)))


def _profile_row(head: CapturedHead) -> dict[str, float]:
    blocks = []
    for _, scores in head.blocks():
        weights = torch.softmax(scores, -1)
        participation = weights.square().sum(1).double().numpy()
        blocks.append((*score_deviations(scores), participation, weights[:, 0].numpy()))
    deviation, edge, participation, sink = map(np.concatenate, zip(*blocks, strict=True))
    return {
        "layer": head.layer,
        "head": head.head,
        "horizon": head_horizon(head),
        "score_std": float(np.median(deviation)),
        "gaussian": float((deviation < edge / 2).mean()),
        "stable": float(((deviation >= edge / 2) & (deviation < edge)).mean()),
        "frozen": float((deviation >= edge).mean()),
        "effective_tokens": float(np.median(1 / participation)),
        "participation": float(participation.mean()),
        "first_token": float(sink.mean()),
    }


BLOCK = 1 << 18
"""Entries of attention at a time: what stays in the processor's cache between passes over them."""


@dataclass(frozen=True, eq=False)
class HeadInfluence:
    """First- and second-order effect of every token on the mean output of a head."""

    psi: Tensor  # (N, d_v)
    received: Tensor  # (N,) sum_i P_ij, attention received: the heavy hitters' score
    participation: Tensor  # (N,) sum_j P_ij^2 of each query
    output: Tensor  # (N, d_v)
    saturation: Tensor  # (N, d_v) N sum_i P_ij^2 (V_j - O_i)
    bias: Tensor  # (N, d_v) N sum_j P_ij^2 (O_i - V_j): n times a query's bias

    @property
    def variance(self) -> float:
        """Trace of Cov psi: n times the delta method's E|m_n - m|^2."""
        return float(self.psi.double().square().sum(-1).mean())

    @property
    def second_order(self) -> float:
        """Relative next order of the variance, times n.

        A token j that is drawn answers a query i with weight a / (a + n - 1), a = N P_ij, not
        a / n: to next order its influence shrinks by sum_i P_ij (N P_ij / n) (V_j - O_i), and
        outputs are biased by -(1/n) sum_j N P_ij^2 (V_j - O_i).
        """
        shrink = 2 * float((self.psi.double() * self.saturation.double()).sum(-1).mean())
        drift = float(self.bias.double().mean(0).square().sum())
        return (shrink + drift) / max(self.variance, 1e-300)

    def reliable(self, n: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the next order of the expansion is small at each n; thresholds set on MiniLM.

        The weights of a query over n tokens are spread, and the tokens that matter do not saturate.
        """
        participation = len(self.psi) * float(self.participation.double().mean())
        spread = participation / n < MAX_PARTICIPATION
        return np.asarray(spread & (self.second_order / n < MAX_SATURATION))


def head_influence(head: CapturedHead) -> HeadInfluence:
    """Influence of every token of a head, holding a block of attention at a time."""
    size = len(head)
    received, squared = torch.zeros(size), torch.zeros(size)
    back, squared_back = torch.zeros_like(head.v), torch.zeros_like(head.v)
    outputs, participations, biases = [], [], []
    for _, scores in head.blocks(BLOCK):
        weights = torch.softmax(scores, dim=-1)
        output = weights @ head.v
        received += weights.sum(0)
        back += weights.T @ output
        weights.square_()
        participation = weights.sum(-1)
        squared += weights.sum(0)
        squared_back += weights.T @ output
        biases.append(participation[:, None] * output - weights @ head.v)
        outputs.append(output)
        participations.append(participation)
    output = torch.cat(outputs)
    return HeadInfluence(
        psi=output - output.mean(0) + received[:, None] * head.v - back,
        received=received,
        participation=torch.cat(participations),
        output=output,
        saturation=size * (squared[:, None] * head.v - squared_back),
        bias=size * torch.cat(biases),
    )


def influence(capture: Captured, layer: int, head: int | None = None) -> Array:
    """Influence |psi_j| of every token on a head's mean output, or on the whole layer's.

    The layer's is the length of the concatenated psi of its heads.
    """
    heads = range(capture.heads) if head is None else [capture.check_head(head)]
    psi = torch.cat([head_influence(capture[layer, number]).psi for number in heads], dim=1)
    return psi.norm(dim=1).double().numpy()
