"""Which samplers is a plan chosen from? One family, at sizes on a grid and between."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnlimit.checks import Array
from attnlimit.samplers import Sampler, Threshold
from attnlimit.samplers.base import check_sampler
from attnlimit.samplers.spec import parse_sampler

SIZES = 25
FINER = 20
SMALLEST_THRESHOLD, LARGEST_THRESHOLD = 10.0, 10240.0


def family_of(scheme: str | Sampler) -> Sampler:
    """Return the sampler that stands for all its sizes."""
    if isinstance(scheme, str):
        return Threshold(1.0) if scheme == "threshold" else parse_sampler(scheme)
    family = check_sampler(scheme)
    family.sized(2)  # says so if it has no sizes
    return family


def size_grids(family: Sampler, tokens: int) -> tuple[Array, Array]:
    """Sizes that are tabulated, and the finer ones that are chosen from."""
    if isinstance(family, Threshold):
        sizes = np.geomspace(SMALLEST_THRESHOLD, LARGEST_THRESHOLD, SIZES)
        fine = np.geomspace(SMALLEST_THRESHOLD, LARGEST_THRESHOLD, FINER * (SIZES - 1) + 1)
        return sizes, np.array([float(f"{c:.4g}") for c in fine])
    sizes, fine = (
        np.unique(np.geomspace(2, tokens, number).round()) for number in (SIZES, FINER * SIZES)
    )
    return sizes, fine


def sized_like(family: Sampler, size: float) -> Sampler:
    """Return the family's sampler of a size: c of a threshold, the keys of any other."""
    return (
        replace(family, c=float(size)) if isinstance(family, Threshold) else family.sized(int(size))
    )
