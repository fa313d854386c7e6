"""Horizon, score deviations and effective tokens of captured heads."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.models.captured.captured import Captured, CapturedHead


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
