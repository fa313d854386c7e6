"""Which of several settings? The one with the least loss on bags left out of training.

The loss is that of log-odds at their best scale: a ridge shrinks all of them, which changes no
decision, and the plain loss would punish it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array, positive
from attnlimit.errors import BadInput, NotConverged

FOLDS = 5
SIZES = np.geomspace(0.1, 8.0, 30)
"""Root mean squares that log-odds are scaled to; the last keeps separable bags comparable."""

Option = float | Sequence[float]
"""One value, or several to choose from."""

Index = NDArray[np.int64]
Trained = Callable[[Index], Array]
"""From places of bags to their log-odds."""


def best_settings(
    labels: Array,
    options: Mapping[str, Option],
    train: Callable[[Index], Callable[..., Trained]],
) -> dict[str, float]:
    """Settings of the least logistic loss on bags left out; without choice, those that are given.

    `train(places)` takes what does not depend on the settings from the bags at these places, and
    returns a function from settings to a trained classifier. With one bag in a class there is
    nothing to leave out, and the middle of the values is taken.
    """
    values = {name: _values(name, option) for name, option in options.items()}
    smallest = int(min((labels > 0).sum(), (labels < 0).sum()))
    if all(len(each) == 1 for each in values.values()) or smallest < 2:
        return {name: each[len(each) // 2] for name, each in values.items()}
    settings = [dict(zip(values, each, strict=True)) for each in product(*values.values())]
    odds = np.empty((len(settings), len(labels)))
    for rest, left_out in _folds(labels, min(FOLDS, smallest)):
        fit = train(rest)
        for place, setting in enumerate(settings):
            odds[place, left_out] = _log_odds(fit, setting, left_out)
    return settings[int(np.argmin([_loss(row, labels) for row in odds]))]


def _values(name: str, option: Option) -> list[float]:
    values = [option] if isinstance(option, (int, float, np.number)) else list(option)
    if not values:
        raise BadInput(f"{name} is empty; give at least one value.")
    return [positive(value, name) for value in values]


def _folds(labels: Array, many: int) -> list[tuple[Index, Index]]:
    """Folds that each hold both classes, always the same ones."""
    order = np.concatenate([np.flatnonzero(labels > 0), np.flatnonzero(labels < 0)])
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % many
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(many)]


def _log_odds(fit: Callable[..., Trained], setting: dict[str, float], places: Index) -> Array:
    try:
        return fit(**setting)(places)
    except NotConverged:
        return np.full(len(places), np.nan)


def _loss(odds: Array, labels: Array) -> float:
    """Logistic loss of log-odds at the best of all scales; endless where some are not known."""
    size = float(np.sqrt(np.mean(odds**2)))
    if not size > 0:
        return np.inf if np.isnan(size) else float(np.log(2))
    margins = SIZES[:, None] / size * (labels * odds)
    return float(np.logaddexp(0, -margins).mean(axis=1).min())
