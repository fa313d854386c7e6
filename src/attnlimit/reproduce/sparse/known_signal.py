"""What error do rules that know the signal make on drawn bags?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from attnlimit.checks import Array
from attnlimit.sparse import SparseTask, oracle_error
from attnlimit.sparse.law.bag_scores import BagScores
from attnlimit.sparse.law.bayes import log_likelihood_ratio

RULES = {
    "bayes": "best possible (Bayes)",
    "attention": "attention",
    "scan": "largest score alone",
    "pooled": "linear (mean pooling, all tokens)",
}
DRAWN = ("attention", "bayes", "pooled")
"""Those that `drawn_error` applies."""
BLOCK = 2_000_000


def drawn_error(
    task: SparseTask, rule: str, draws: int, rng: np.random.Generator
) -> dict[str, float]:
    """Error on `draws` drawn bags of each class, weighted by the prior, and its standard error.

    Without draws, or for a rule that is not applied, both are NaN.
    """
    if not draws or rule not in DRAWN:
        return {"measured": np.nan, "stderr": np.nan}
    found = oracle_error(task) if rule == "attention" else None
    weights = np.array([1 - task.prior, task.prior])
    losses = []
    block = max(1, BLOCK // task.length)
    for start in range(0, draws, block):
        x = rng.standard_normal((min(block, draws - start), task.length), dtype=np.float32)
        lost = np.zeros(len(x))
        for label, weight in enumerate(weights):  # both classes have the same noise
            x[:, : task.signals] += np.float32(task.strength * label)
            lost += weight * ((_score(x, task, found.details if found else {}, rule) > 0) != label)
        losses.append(lost)
    loss = np.concatenate(losses)
    return {"measured": float(loss.mean()), "stderr": float(loss.std() / np.sqrt(draws))}


def _score(x: NDArray[np.float32], task: SparseTask, best: Mapping[str, float], rule: str) -> Array:
    """A score of rows of <X_l, xi> that is positive where the rule says so."""
    odds = np.log(task.prior / (1 - task.prior))
    if rule == "pooled":
        shift = task.strength * task.signals / task.length
        return np.asarray(shift * task.length * (x.mean(axis=1) - shift / 2) + odds)
    if rule == "bayes" and task.signals == 1:
        top = x.max(axis=1, keepdims=True)
        total = np.exp(np.float32(task.strength) * (x - top)).mean(axis=1, dtype=np.float64)
        return np.log(total) + task.strength * (top[:, 0] - task.strength / 2) + odds
    if rule == "bayes":
        rows = len(x)
        bags = BagScores(np.ones(rows), x.astype(float), np.empty((rows, 0)), 0, np.zeros(rows))
        return log_likelihood_ratio(bags, task) + odds
    if np.isinf(best["sharpness"]):
        return np.asarray(x.max(axis=1) - best["threshold"])
    pooled = (softmax(np.float32(best["sharpness"]) * x, axis=1) * x).sum(axis=1)
    return np.asarray(pooled - best["threshold"])
