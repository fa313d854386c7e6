"""What does a model's own mask function show? Found by asking it, and held to every answer.

transformers describes a mask by a function of four indices. It is asked once what the outermost
queries see, which leaves one candidate of each kind; the one that agrees on every query and key of
this pass is the mask. A function that agrees with none is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.models.capture.masks import BLOCK, sees

Ask = Callable[[Tensor], Tensor]
"""Takes the places of queries (r,), returns what each sees of all keys, (B, r, m)."""

Rule = tuple[bool, int | None]
"""Causal or not, and the width of the window."""


def recognise(function: Any, queries: Tensor, keys: Tensor, batch: int = 1) -> Rule:
    """Return whether a transformers mask function is causal, and the width of its window.

    Parameters
    ----------
    function : callable
        Of batch, head, query and key index, as transformers passes it to a mask interface.
    queries, keys : (n,) and (m,) tensors of int
        Places that this pass asks about; nothing is said of others.
    """
    from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

    if function is bidirectional_mask_function:
        return False, None
    if function is causal_mask_function:
        return True, None
    row = torch.arange(batch)[:, None, None]

    def ask(places: Tensor) -> Tensor:
        found = function(row, torch.zeros_like(row), places[:, None], keys[None, :])
        return found.cpu().expand(batch, len(places), len(keys))

    for causal, window in _candidates(ask, queries, keys):
        if _agrees(ask, queries, keys, causal, window):
            return causal, window
    raise BadInput(
        "This model's attention mask is neither causal, nor a sliding window, nor full: what its "
        "queries see cannot be described here, so it cannot be captured."
    )


def _candidates(ask: Ask, queries: Tensor, keys: Tensor) -> Iterator[Rule]:
    yield True, None
    yield False, None
    ends = queries[[0, -1]]
    distance = (keys[None, :] - ends[:, None]).abs()
    widest = int(distance.masked_fill(~ask(ends)[0], -1).max()) + 1
    yield True, widest
    yield False, widest


def _agrees(ask: Ask, queries: Tensor, keys: Tensor, causal: bool, window: int | None) -> bool:
    if window is not None and window < 1:
        return False
    step = max(1, BLOCK // len(keys))
    return all(
        bool((ask(places) == sees(places, keys, causal, window)).all())
        for places in queries.split(step)
    )
