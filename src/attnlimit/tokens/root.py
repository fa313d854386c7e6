"""The symmetric square root of a covariance."""

from __future__ import annotations

import numpy as np

from attnlimit.checks import Array


def symmetric_root(matrix: Array) -> Array:
    """The symmetric root of a positive semi-definite matrix; rounding below zero counts as zero."""
    eigenvalues, eigenvectors = np.linalg.eigh(matrix)
    return np.asarray((eigenvectors * np.sqrt(np.maximum(eigenvalues, 0))) @ eigenvectors.T)
