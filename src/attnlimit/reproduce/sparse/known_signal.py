"""What error do rules that know the signal make on drawn bags?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
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
    wrong = np.zeros(2)
    block = max(1, BLOCK // task.length)
    for label in (0, 1):
        for start in range(0, draws, block):
            x = rng.standard_normal((min(block, draws - start), task.length))
            x[:, : task.signals] += task.strength * label
            score = _score(x, task, found.details if found else {}, rule)
            wrong[label] += np.sum((score > 0) != bool(label))
    rates, weights = wrong / draws, np.array([1 - task.prior, task.prior])
    stderr = np.sqrt(np.sum(weights**2 * rates * (1 - rates) / draws))
    return {"measured": float(weights @ rates), "stderr": float(stderr)}


def _score(x: Array, task: SparseTask, best: Mapping[str, float], rule: str) -> Array:
    """A score of rows of <X_l, xi> that is positive where the rule says so."""
    odds = np.log(task.prior / (1 - task.prior))
    if rule == "pooled":
        shift = task.strength * task.signals / task.length
        return np.asarray(shift * task.length * (x.mean(axis=1) - shift / 2) + odds)
    if rule == "bayes":
        rows = len(x)
        bags = BagScores(np.ones(rows), x, np.empty((rows, 0)), 0, np.zeros(rows))
        return log_likelihood_ratio(bags, task) + odds
    if np.isinf(best["sharpness"]):
        return np.asarray(x.max(axis=1) - best["threshold"])
    pooled = (softmax(best["sharpness"] * x, axis=1) * x).sum(axis=1)
    return np.asarray(pooled - best["threshold"])
