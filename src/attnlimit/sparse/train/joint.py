"""Joint gradient descent of query and readout in PyTorch: the practice to compare theory with."""

from __future__ import annotations

import numpy as np
import torch

from attnlimit.checks import Array, count, positive
from attnlimit.errors import BadInput
from attnlimit.sparse.train.descent import TrainedAttention
from attnlimit.sparse.train.fit import LinearReadout


def train_jointly(
    X: Array,
    y: Array,
    *,
    ridge: float = 1e-2,
    steps: int = 500,
    lr: float = 0.02,
    query: Array | None = None,
    seed: int = 0,
) -> TrainedAttention:
    """Minimise the logistic loss over (q, w, b) at once, with Adam on all bags.

    `ridge` acts on w and, ten times weaker, on q. Starts from a small random query unless one is
    given. The problem is not convex: what is found depends on the start.
    """
    ridge, lr, steps = positive(ridge, "ridge"), positive(lr, "lr"), count(steps, "steps")
    if X.ndim != 3 or len(X) != len(y):
        raise BadInput(f"X must be (bags, tokens, dim) with one label a bag, got {X.shape}.")
    generator = torch.Generator().manual_seed(seed)
    bags = torch.as_tensor(X, dtype=torch.float32)
    labels = torch.as_tensor(y, dtype=torch.float32)
    dim = bags.shape[2]
    if query is None:
        start = torch.randn(dim, generator=generator) / np.sqrt(dim)
    else:
        start = torch.as_tensor(query, dtype=torch.float32)
    q = start.clone().requires_grad_(True)
    w = torch.zeros(dim, requires_grad=True)
    b = torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.Adam([q, w, b], lr=lr)
    for _ in range(steps):
        optimiser.zero_grad()
        weights = torch.softmax(bags @ q, dim=1)
        z = torch.einsum("nl,nl->n", weights, bags @ w) + b
        loss = torch.nn.functional.softplus(-labels * z).mean()
        penalty = 0.5 * ridge * (w.square().sum() + 0.1 * q.square().sum())
        (loss + penalty).backward()
        optimiser.step()
    with torch.no_grad():
        z = torch.einsum("nl,nl->n", torch.softmax(bags @ q, dim=1), bags @ w) + b
        train_loss = float(torch.nn.functional.softplus(-labels * z).mean())
        train_error = float((labels * z <= 0).float().mean())
    fitted = LinearReadout(
        w.detach().double().numpy(), float(b.detach()), train_loss, train_error, steps
    )
    return TrainedAttention(q.detach().double().numpy(), 1.0, fitted)
