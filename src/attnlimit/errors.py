"""Exceptions; everything raised on purpose derives from AttnlimitError."""

from __future__ import annotations


class AttnlimitError(Exception):
    """Base of every error this package raises on purpose."""


class BadInput(AttnlimitError, ValueError):
    """An argument or a file that cannot be used; the message says what was expected."""


class NoLimitError(AttnlimitError):
    """The infinite-token limit does not exist: the tokens' CGF is infinite."""


class UnboundedSupport(AttnlimitError):
    """The support of the measure is unbounded in a direction."""


class NotConverged(AttnlimitError):
    """A solver or quadrature stopped short of its tolerance, at `reached`."""

    def __init__(self, message: str, reached: float = float("nan")) -> None:
        super().__init__(message)
        self.reached = reached


class UnreliableFit(AttnlimitError):
    """There is too little data for an estimate."""


class MissingExtra(AttnlimitError, ImportError):
    """An optional dependency is missing; the message names the extra to install."""


class Interrupted(AttnlimitError):
    """The user stopped the run; finished shards are kept."""
