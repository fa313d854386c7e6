"""Sparse-token classification: what attention can detect, and from how much data."""

from typing import TYPE_CHECKING, Any

from attnlimit.sparse.bags.bags import Bags, make_bags
from attnlimit.sparse.bags.checks import Check
from attnlimit.sparse.bags.estimate import BagEstimate, estimate
from attnlimit.sparse.bags.plan import BagPlan, measure_plan, plan_bags
from attnlimit.sparse.bags.read import read_bags
from attnlimit.sparse.error_rate import ErrorRate
from attnlimit.sparse.instances.enough import Enough, enough
from attnlimit.sparse.instances.gated import GatedAttention
from attnlimit.sparse.law.alignment import Alignment, best_step_sizes, query_alignment
from attnlimit.sparse.law.bayes import bayes_error
from attnlimit.sparse.law.capacity import Capacity, capacity
from attnlimit.sparse.law.end_to_end import EndToEnd, best_split, end_to_end
from attnlimit.sparse.law.learning_curve import LearningCurve, learning_curve
from attnlimit.sparse.law.oracle import oracle_error, scan_error, strength_needed
from attnlimit.sparse.law.readout import Readout, readout, transfer_error
from attnlimit.sparse.losses import Loss, SmoothedHinge, UserLoss, hinge
from attnlimit.sparse.pooling.scored import ScoredBags
from attnlimit.sparse.task import SparseTask
from attnlimit.sparse.train.descent import (
    QuerySteps,
    TrainedAttention,
    as_blocks,
    query_steps,
    train_attention,
)
from attnlimit.sparse.train.fit import LinearReadout, fit_readout
from attnlimit.sparse.train.simulate import (
    Measured,
    simulate_alignment,
    simulate_capacity,
    simulate_protocol,
    simulate_readout,
)

if TYPE_CHECKING:
    from attnlimit.sparse.pooling.attention import AttentionPooling
    from attnlimit.sparse.pooling.mean import MaxPooling, MeanPooling

__all__ = [
    "Alignment",
    "AttentionPooling",
    "BagEstimate",
    "BagPlan",
    "Bags",
    "Capacity",
    "Check",
    "EndToEnd",
    "Enough",
    "ErrorRate",
    "GatedAttention",
    "LearningCurve",
    "LinearReadout",
    "Loss",
    "MaxPooling",
    "MeanPooling",
    "Measured",
    "QuerySteps",
    "Readout",
    "ScoredBags",
    "SmoothedHinge",
    "SparseTask",
    "TrainedAttention",
    "UserLoss",
    "as_blocks",
    "bayes_error",
    "best_split",
    "best_step_sizes",
    "capacity",
    "end_to_end",
    "enough",
    "estimate",
    "fit_readout",
    "hinge",
    "learning_curve",
    "make_bags",
    "measure_plan",
    "oracle_error",
    "plan_bags",
    "query_alignment",
    "query_steps",
    "read_bags",
    "readout",
    "scan_error",
    "simulate_alignment",
    "simulate_capacity",
    "simulate_protocol",
    "simulate_readout",
    "strength_needed",
    "train_attention",
    "transfer_error",
]

_ESTIMATORS = {"AttentionPooling": "attention", "MaxPooling": "mean", "MeanPooling": "mean"}


def __getattr__(name: str) -> Any:
    """Load what needs scikit-learn only when it is asked for."""
    if name not in _ESTIMATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"attnlimit.sparse.pooling.{_ESTIMATORS[name]}"), name)
