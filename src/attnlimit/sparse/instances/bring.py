"""Where do scores come from? A fitted pooling, one to be fitted, a torch module, or arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from attnlimit.errors import BadInput
from attnlimit.sparse.bags.bags import Bags
from attnlimit.sparse.instances.gated import module_attention
from attnlimit.sparse.pooling.scored import ScoredBags, Scores

FOLDS = 5


def scored_bags(
    bags: Bags | Sequence[ArrayLike] | None, pooling: Any
) -> tuple[list[ScoredBags], bool]:
    """Bags as the pooling sees them, in groups of one readout each; whether it never saw them."""
    if isinstance(pooling, ScoredBags):
        return [pooling], False
    if bags is None:
        raise BadInput("bags are needed, unless the pooling is a ScoredBags.")
    instances = bags.instances if isinstance(bags, Bags) else list(bags)
    if isinstance(pooling, torch.nn.Module):
        pooling = module_attention(pooling)
    if not isinstance(pooling, Scores):
        raise BadInput(
            f"{type(pooling).__name__} is not an attention pooling; give AttentionPooling, "
            "MeanPooling, GatedAttention, ScoredBags or a torch module that scores instances."
        )
    if not hasattr(pooling, "fit") or _is_fitted(pooling):
        return [pooling.scored(instances)], False
    if not isinstance(bags, Bags):
        raise BadInput(
            f"{type(pooling).__name__} is not fitted: fit it first, or give labelled bags "
            "(al.sparse.make_bags, read_bags), to which it will be fitted."
        )
    return _held_out(bags, pooling), True


def _is_fitted(pooling: Any) -> bool:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(pooling)
    except NotFittedError:
        return False
    return True


def _held_out(bags: Bags, pooling: Any) -> list[ScoredBags]:
    from sklearn.base import clone
    from sklearn.model_selection import StratifiedKFold

    fewest = int(min(np.sum(bags.labels > 0), np.sum(bags.labels < 0)))
    if fewest < 2:
        raise BadInput(
            "a class has only one bag, so none can be kept from the fit; label more bags, or give "
            "a fitted pooling."
        )
    folds = StratifiedKFold(min(FOLDS, fewest), shuffle=True, random_state=0)
    groups = []
    for train, test in folds.split(bags.labels, bags.labels):
        fitted = clone(pooling).fit([bags.instances[i] for i in train], bags.labels[train])
        groups.append(fitted.scored([bags.instances[i] for i in test]))
    return groups
