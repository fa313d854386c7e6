"""Tertiles of heads and texts by horizon, and the predicted error of heads on n keys."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from attnlimit.checks import Array
from attnlimit.models.captures import Capture, capture
from attnlimit.models.loading import load_once
from attnlimit.reproduce.downstream import retrieval_task
from attnlimit.reproduce.experiment import Config
from attnlimit.theory.one_query.population import population_law

TERTILES = ("low horizon", "middle", "high horizon")
RANKED = 12
"""Texts over which the horizons of heads are averaged."""
READ = ("model", "tokens", "articles", "passages", "queries")
"""Settings on which the horizons of heads depend."""


def head_horizons(config: Config) -> Array:
    """Horizon of every head, (layers, heads), the mean over a few queries."""
    return _head_horizons(*(config[name] for name in READ))


@lru_cache(maxsize=2)
def _head_horizons(*values: str | int) -> Array:
    config: Config = dict(zip(READ, values, strict=True))
    task, model = retrieval_task(config), load_once(config["model"])
    some = task.queries[np.linspace(0, len(task.queries) - 1, RANKED).round().astype(int)]
    return np.asarray(
        np.mean([capture(model, task.ids[entry]).horizons() for entry in some], axis=0)
    )


def tertiles(values: Array) -> np.ndarray:
    """Tertile of every value among all: 0, 1 or 2."""
    return np.searchsorted(np.quantile(values, [1 / 3, 2 / 3]), values)


def own_errors(capture: Capture, n: list[int]) -> Array:
    """Squared error of every head's output over its squared size, (layers, heads, n), exact."""
    law = np.full((len(capture.layers), capture.heads, len(n)), np.nan)
    several = [k for k, entry in enumerate(n) if entry > 1]
    queries = torch.arange(len(capture))
    for layer, head in np.ndindex(law.shape[:2]):
        actual = capture[layer, head]
        scores = actual.scores(queries)
        size = float((torch.softmax(scores, -1) @ actual.v).square().sum(1).mean())
        errors = population_law(scores, actual.v, [n[k] for k in several]).mse.mean(0)
        law[layer, head, several] = errors / size
    return law
