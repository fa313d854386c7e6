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
    table = horizons(capture)
    rows = []
    for index, head in enumerate(capture):
        layer, number = divmod(index, capture.heads)
        rows.append(
            {"layer": head.layer, "head": head.head, "horizon": table[layer, number], **_row(head)}
        )
    return pd.DataFrame(rows)


def score_deviations(scores: Tensor) -> tuple[Array, Array]:
    """Deviation of each query's visible scores (R,), and sqrt(2 log n), beyond which it freezes."""
    visible = scores > -torch.inf
    counts = visible.sum(1)
    filled = scores.masked_fill(~visible, 0.0)
    centred = (filled - filled.sum(1, keepdim=True) / counts[:, None]).masked_fill(~visible, 0.0)
    deviation = (centred.square().sum(1) / counts).sqrt().double().numpy()
    return deviation, np.sqrt(2 * np.log(np.maximum(counts.numpy(), 2)))


def _row(head: CapturedHead) -> dict[str, float]:
    deviations, edges, participations, sinks = [], [], [], []
    for _, scores in head.blocks():
        weights = torch.softmax(scores, -1)
        found = score_deviations(scores)
        deviations.append(found[0])
        edges.append(found[1])
        participations.append(weights.square().sum(1).double().numpy())
        sinks.append(weights[:, 0].numpy())
    deviation, edge, participation = map(np.concatenate, (deviations, edges, participations))
    return {
        "score_std": float(np.median(deviation)),
        "gaussian": float((deviation < edge / 2).mean()),
        "stable": float(((deviation >= edge / 2) & (deviation < edge)).mean()),
        "frozen": float((deviation >= edge).mean()),
        "effective_tokens": float(np.median(1 / participation)),
        "participation": float(participation.mean()),
        "first_token": float(np.concatenate(sinks).mean()),
    }
