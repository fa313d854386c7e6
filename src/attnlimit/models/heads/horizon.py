"""What is a real head's horizon? From the covariances of its queries and keys, both captured."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.models.capture.captured import Captured, CapturedHead

CONVENTIONS = ("head", "summed")


def horizons(capture: Captured, *, convention: str = "head") -> Array:
    """Horizon H = |S^1/2 A S^1/2| of every head, (layers, heads).

    With queries W_q x and keys W_k x of tokens x of covariance S, the squared singular values of
    scale S^1/2 W_k' W_q S^1/2 are the eigenvalues of scale^2 Cov(k) Cov(q): the captured queries
    and keys are enough, and position rotations are part of them.

    Parameters
    ----------
    convention : {"head", "summed"}
        "head" is each head's own, with the model's scale. "summed" is the convention of the code
        published with arXiv 2512.10656: all heads of a layer as one matrix and no scale; one value
        for each layer, repeated over its heads.
    """
    checks.one_of(convention, CONVENTIONS, "convention")
    rows = []
    for number, layer in capture.layers.items():
        heads = [layer.head(number, head) for head in range(len(layer.q))]
        queries, keys = (torch.stack([getattr(head, name) for head in heads]) for name in "qk")
        if convention == "summed":
            joined = [tensor.transpose(0, 1).flatten(1)[None] for tensor in (queries, keys)]
            rows.append(np.repeat(_largest(*joined), len(heads)))
        else:
            rows.append(layer.scale * _largest(queries, keys))
    return np.stack(rows)


def head_horizon(head: CapturedHead) -> float:
    """Horizon of one head, by its own convention."""
    return float(head.scale * _largest(head.q[None], head.k[None])[0])


def _largest(q: Tensor, k: Tensor) -> Array:
    """Square root of the largest eigenvalue of Cov(k) Cov(q), for each head (H, N, d)."""
    return torch.linalg.matrix_norm(_root(k) @ _root(q).transpose(1, 2), ord=2).numpy()


def _root(tensor: Tensor) -> Tensor:
    """R with R'R = Cov, so that |R_k R_q'| squared is the largest eigenvalue of Cov_k Cov_q."""
    centred = tensor.double() - tensor.double().mean(dim=1, keepdim=True)
    covariance = centred.transpose(1, 2) @ centred / centred.shape[1]
    values, vectors = torch.linalg.eigh(covariance)
    return values.clamp_min(0).sqrt()[:, :, None] * vectors.transpose(1, 2)
