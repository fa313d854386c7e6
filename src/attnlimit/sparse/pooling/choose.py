"""Which of several settings? The one with the least loss on bags left out of training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array, positive
from attnlimit.errors import BadInput, NotConverged

FOLDS = 5

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
    """Settings of the least logistic loss over the folds; without choice, those that are given.

    `train(places)` takes what does not depend on the settings from the bags at these places, and
    returns a function from settings to a trained classifier. With one bag in a class there is
    nothing to leave out, and the middle of the values is taken.
    """
    values = {name: _values(name, option) for name, option in options.items()}
    smallest = int(min((labels > 0).sum(), (labels < 0).sum()))
    if all(len(each) == 1 for each in values.values()) or smallest < 2:
        return {name: each[len(each) // 2] for name, each in values.items()}
    settings = [dict(zip(values, each, strict=True)) for each in product(*values.values())]
    losses = np.zeros(len(settings))
    for rest, left_out in _folds(labels, min(FOLDS, smallest)):
        fit = train(rest)
        for place, setting in enumerate(settings):
            losses[place] += _loss(fit, setting, left_out, labels[left_out])
    return settings[int(np.argmin(losses))]


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


def _loss(
    fit: Callable[..., Trained], setting: dict[str, float], places: Index, labels: Array
) -> float:
    try:
        return float(np.logaddexp(0, -labels * fit(**setting)(places)).sum())
    except NotConverged:
        return np.inf
