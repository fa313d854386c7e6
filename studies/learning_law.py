"""A two-parameter law of learning curves against the exact asymptotics.

The law (attnlimit.bags.forecast) over the exact error of n = alpha d bags, at the best ridge
and for attention the best split and sharpness: with nothing fitted, and for attention with strength
and dimension fitted at three sizes. python studies/learning_law.py
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from attnlimit.bags.forecast import LearningLaw, learning_law
from attnlimit.checks import Array
from attnlimit.sparse import SparseTask, readout
from bag_split import best_split
from tables import write_tables

TASKS = [  # length, signals, strength, prior
    SparseTask(10, 1, 4.0, 0.5),
    SparseTask(10, 1, 5.3, 0.5),
    SparseTask(50, 2, 4.0, 0.5),
    SparseTask(5, 2, 2.5, 0.5),
    SparseTask(10, 1, 5.0, 0.2),
]
ALPHAS = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
FITTED = np.array([1.0, 2.0, 4.0])
POOLED_RIDGES = 10.0 ** np.arange(-4.0, 2.01, 0.25)
ATTENTION_RIDGES = (1e-3, 1e-2, 1e-1, 1.0)


def exact_pooled(task: SparseTask, alpha: float) -> float:
    return min(readout(task, alpha, "pooled", ridge=ridge).test_error for ridge in POOLED_RIDGES)


def exact_attention(task: SparseTask, alpha: float) -> float:
    return min(best_split(task, alpha, ridge=ridge).test_error for ridge in ATTENTION_RIDGES)


def fitted(law: LearningLaw, exact: Array) -> Array:
    """Errors of the law, with the strength and dimension that meet some of the exact ones."""
    seen = np.arcsin(np.sqrt(exact[np.isin(ALPHAS, FITTED)]))

    def off(logs: Array) -> Array:
        return law.angle(*np.exp(logs), FITTED) - seen

    fit = least_squares(off, np.log([4.0, 1.0]))
    return law(*np.exp(fit.x), ALPHAS)


def rows(task: SparseTask) -> pd.DataFrame:
    kind = {"length": task.length, "signals": task.signals, "prior": task.prior}
    pooled, attention = (learning_law(model, **kind) for model in ("pooled", "attention"))
    linear = np.array([exact_pooled(task, alpha) for alpha in ALPHAS])
    learned = np.array([exact_attention(task, alpha) for alpha in ALPHAS])
    distance = task.strength * task.signals / np.sqrt(task.length)  # of the means of pooled bags
    results = {
        "alpha": ALPHAS,
        "pooled": linear,
        "pooled_law": pooled(distance, 1.0, ALPHAS),
        "attention": learned,
        "attention_law": attention(task.strength, 1.0, ALPHAS),
        "attention_fitted": fitted(attention, learned),
    }
    return pd.DataFrame(results).assign(**kind, strength=task.strength)


if __name__ == "__main__":
    write_tables({"law-over-exact": pd.concat(map(rows, TASKS))})
