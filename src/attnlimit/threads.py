"""How many cores does a piece of work take? One: cores are used by doing several pieces at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch and the linear algebra on one core.

    Heads are many and small: threads inside one cost more than they bring, and the order of
    floating point sums, so the last bit of a result, must not depend on how many cores there are.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _pools().limit(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=1)
def _pools() -> Any:
    import scipy.linalg  # noqa: F401  (loads the linear algebra whose threads are to be limited)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
