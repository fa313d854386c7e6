"""In which coordinates is noise white? Found from few instances too, by shrinking their covariance.

Features are standardised, then the covariance S of the noise becomes (1-c) S + c mean(eigenvalues),
with Ledoit and Wolf's c, the one that is closest to the true covariance on average.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlimit.checks import Array, count
from attnlimit.errors import BadInput

SMALLEST = 1e-10
"""Directions with less of the variance than this are not there."""


@dataclass(frozen=True, eq=False)
class Whitening:
    """Coordinates (x - centre) @ matrix, in which noise has about identity covariance."""

    centre: Array
    matrix: Array
    shrinkage: float

    def __call__(self, instances: Array) -> Array:
        """Return instances (M, d) in these coordinates."""
        return (instances - self.centre) @ self.matrix


def whitening(
    instances: Array,
    noise: Array,
    *,
    shrinkage: float | None = None,
    max_dim: int | None = None,
) -> Whitening:
    """Coordinates that make `noise` (m, d) white; `instances` (M, d) are all there are.

    Parameters
    ----------
    shrinkage : float, optional
        Between 0 and 1, in place of Ledoit and Wolf's.
    max_dim : int, optional
        Keep at most so many directions, those of most noise; all by default.
    """
    if len(noise) < 2:
        raise BadInput(
            f"noise must have at least 2 instances to be whitened, got {len(noise)} "
            "(1 sample in the negative class); give more bags."
        )
    centre = noise.mean(axis=0)
    scale = instances.std(axis=0)
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    basis = _span((instances - centre) * inverse)
    seen = ((noise - centre) * inverse) @ basis
    chosen = ledoit_wolf(seen) if shrinkage is None else shrinkage
    values, vectors = np.linalg.eigh(seen.T @ seen / len(seen))
    shrunk = (1 - chosen) * np.maximum(values, 0) + chosen * values.mean()
    total = float(shrunk.sum())
    keep = np.flatnonzero(shrunk > SMALLEST * total)[::-1]
    if keep.size == 0:
        raise BadInput("all instances of the noise are alike, so they cannot be whitened.")
    keep = keep[: None if max_dim is None else count(max_dim, "max_dim")]
    matrix = inverse[:, None] * (basis @ (vectors[:, keep] / np.sqrt(shrunk[keep])))
    return Whitening(centre, matrix, chosen)


def _span(rows: Array) -> Array:
    """Orthonormal basis (d, k) of what the rows span, all of space unless they are few."""
    size, dim = rows.shape
    if size >= dim:
        return np.eye(dim)
    values, vectors = np.linalg.eigh(rows @ rows.T)
    keep = values > SMALLEST * values.max()
    return rows.T @ (vectors[:, keep] / np.sqrt(values[keep]))


def ledoit_wolf(centred: Array) -> float:
    """How far to shrink the covariance of centred instances (m, d) towards a multiple of one."""
    size, dim = centred.shape
    covariance = centred.T @ centred / size
    energy = float((covariance**2).sum())
    distance = energy - np.trace(covariance) ** 2 / dim
    noise = (float((centred**2).sum(axis=1) @ (centred**2).sum(axis=1)) / size - energy) / size
    return float(np.clip(noise / distance, 0.0, 1.0)) if distance > 0 else 1.0
