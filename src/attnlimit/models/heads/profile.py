"""What kind of head is it? Horizon, score deviations, regimes and effective tokens, per head."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.models.capture.captured import Captured, CapturedHead
from attnlimit.models.heads.horizon import horizons


def profile(capture: Captured) -> pd.DataFrame:
    """One row for each head.

    Columns: `horizon`; `score_std`, the median over queries of the standard deviation of a
    query's scores; `gaussian`, `stable` and `frozen`, the fractions of queries whose deviation is
    below half of, between half and the whole of, and above sqrt(2 log n) for its n visible keys;
    `effective_tokens`, the median over queries of 1 / sum p^2; `participation`, the mean of
    sum p^2; `first_token`, the mean weight on the first token (a sink, when large).
    """
    return pd.DataFrame(
        [
            {"layer": head.layer, "head": head.head, "horizon": horizon, **_row(head)}
            for head, horizon in zip(capture, horizons(capture).ravel(), strict=True)
        ]
    )


def score_deviations(scores: Tensor) -> tuple[Array, Array]:
    """Deviation of each query's visible scores (R,), and sqrt(2 log n), beyond which it freezes."""
    visible = scores > -torch.inf
    counts = visible.sum(1)
    filled = scores.masked_fill(~visible, 0.0)
    centred = (filled - filled.sum(1, keepdim=True) / counts[:, None]).masked_fill(~visible, 0.0)
    deviation = (centred.square().sum(1) / counts).sqrt().double().numpy()
    return deviation, np.sqrt(2 * np.log(np.maximum(counts.numpy(), 2)))


def _row(head: CapturedHead) -> dict[str, float]:
    blocks = []
    for _, scores in head.blocks():
        weights = torch.softmax(scores, -1)
        participation = weights.square().sum(1).double().numpy()
        blocks.append((*score_deviations(scores), participation, weights[:, 0].numpy()))
    deviation, edge, participation, sink = map(np.concatenate, zip(*blocks, strict=True))
    return {
        "score_std": float(np.median(deviation)),
        "gaussian": float((deviation < edge / 2).mean()),
        "stable": float(((deviation >= edge / 2) & (deviation < edge)).mean()),
        "frozen": float((deviation >= edge).mean()),
        "effective_tokens": float(np.median(1 / participation)),
        "participation": float(participation.mean()),
        "first_token": float(sink.mean()),
    }
