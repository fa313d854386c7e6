"""What can go wrong, as one hierarchy: everything raised on purpose derives from AttnlimitError."""

from __future__ import annotations


class AttnlimitError(Exception):
    """Base of every error this package raises on purpose."""


class BadInput(AttnlimitError, ValueError):
    """What was given cannot be used; the message says what was expected and what to do."""


class NoLimitError(AttnlimitError):
    """The infinite-token limit does not exist here: the tokens' CGF is infinite."""


class UnboundedSupport(AttnlimitError):
    """The measure has no furthest point: its support is unbounded in that direction."""


class NotConverged(AttnlimitError):
    """A solver or quadrature stopped short of its tolerance; `reached` is what it got to."""

    def __init__(self, message: str, reached: float = float("nan")) -> None:
        super().__init__(message)
        self.reached = reached


class UnreliableFit(AttnlimitError):
    """There is too little data for the number asked; `estimate` carries it if there is one."""

    def __init__(self, message: str, estimate: float = float("nan")) -> None:
        super().__init__(message)
        self.estimate = estimate


class MissingExtra(AttnlimitError, ImportError):
    """An optional dependency is needed; the message names the extra to install."""


class Interrupted(AttnlimitError):
    """The user stopped the run; what was finished is kept."""
