"""Limits on the threads of torch and of the linear algebra libraries."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

SMALL = 4_000_000
"""Entries of a matrix below which threads cost more time than they save."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch and the linear algebra on one core; a context manager or a decorator.

    The order of floating-point sums, so the last bit of a result, then does not depend on the
    number of cores.
    """
    import torch  # noqa: F401  (what is loaded later would not be limited)

    with small_matrices():
        yield


@contextmanager
def small_matrices(entries: int = 0) -> Iterator[None]:
    """Run on one core if matrices have fewer than `SMALL` entries; torch is not imported for it."""
    if entries >= SMALL:
        yield
        return
    torch = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    try:
        if torch is not None:
            torch.set_num_threads(1)
        with _pools().limit(limits=1):
            yield
    finally:
        if torch is not None:
            torch.set_num_threads(before)


@lru_cache(maxsize=1)
def _pools() -> Any:
    import scipy.linalg  # noqa: F401  (loads the libraries whose threads are limited)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
