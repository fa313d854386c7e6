"""Sparse-token classification: what attention can detect, and from how much data."""

from attnlimit.sparse.alignment import best_step_sizes, query_alignment
from attnlimit.sparse.capacity import capacity
from attnlimit.sparse.readout import learning_curve, readout
from attnlimit.sparse.task import SparseTask

__all__ = [
    "SparseTask",
    "best_step_sizes",
    "capacity",
    "learning_curve",
    "query_alignment",
    "readout",
]
