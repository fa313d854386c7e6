"""Train query and readout at once, by L-BFGS: the practice to compare the two steps with."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from attnlimit.checks import Array, count, positive
from attnlimit.errors import NotConverged
from attnlimit.sparse.train.descent import TrainedAttention
from attnlimit.sparse.train.fit import LinearReadout
from attnlimit.sparse.train.stacked import Stacked

QUERY_RIDGE = 0.1
"""Ridge on the query, as a part of the readout's."""


def train_jointly(
    bags: Stacked, labels: Array, start: Array, *, ridge: float = 1e-2, steps: int = 2000
) -> TrainedAttention:
    """Minimise the logistic loss over (q, w, b) at once, from the query `start` and w = 0.

    `ridge` acts on w and, ten times weaker, on q. The problem is not convex: what is found
    depends on the start.
    """
    ridge, steps = positive(ridge, "ridge"), count(steps, "steps")
    X, y, n = bags.instances, labels.astype(float), len(bags)
    dim = X.shape[1]
    ridges = np.concatenate([np.full(dim, QUERY_RIDGE * ridge), np.full(dim, ridge), [0.0]])

    def forward(x: Array) -> tuple[Array, Array, Array]:
        p, values = bags.softmax(X @ x[:dim]), X @ x[dim:-1]
        return p, values, bags.sums(p * values) + x[-1]

    def objective(x: Array) -> tuple[float, Array]:
        p, values, z = forward(x)
        slope = -y * expit(-y * z) / n
        pull = p * bags.spread(slope)
        q_slope = X.T @ (pull * (values - bags.spread(z - x[-1])))
        slopes = np.concatenate([q_slope, X.T @ pull, [slope.sum()]])
        loss = float(np.logaddexp(0, -y * z).mean() + 0.5 * ridges @ x**2)
        return loss, slopes + ridges * x

    first = np.concatenate([start, np.zeros(dim + 1)])
    options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-10, "gtol": 1e-6}
    found = minimize(objective, first, jac=True, method="L-BFGS-B", options=options)
    if found.nit >= steps:
        raise NotConverged(
            f"joint training did not settle in {steps} steps; raise ridge or steps.",
            reached=float(np.abs(found.jac).max()),
        )
    z = forward(found.x)[2]
    loss, error = float(np.logaddexp(0, -y * z).mean()), float(np.mean(y * z <= 0))
    readout = LinearReadout(found.x[dim:-1], float(found.x[-1]), loss, error, int(found.nit))
    return TrainedAttention(found.x[:dim], 1.0, readout)
