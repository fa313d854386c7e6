"""Sparse-token classification: what attention can detect, and from how much data."""

from attnlimit.sparse.alignment import best_step_sizes, query_alignment
from attnlimit.sparse.bayes import bayes_error
from attnlimit.sparse.capacity import capacity
from attnlimit.sparse.descent import query_steps, train_attention
from attnlimit.sparse.fit import fit_readout
from attnlimit.sparse.oracle import oracle_error, scan_error, strength_needed
from attnlimit.sparse.readout import learning_curve, readout
from attnlimit.sparse.simulate import simulate_alignment, simulate_capacity, simulate_readout
from attnlimit.sparse.task import SparseTask

__all__ = [
    "SparseTask",
    "bayes_error",
    "best_step_sizes",
    "capacity",
    "fit_readout",
    "learning_curve",
    "oracle_error",
    "query_alignment",
    "query_steps",
    "readout",
    "scan_error",
    "simulate_alignment",
    "simulate_capacity",
    "simulate_readout",
    "strength_needed",
    "train_attention",
]
