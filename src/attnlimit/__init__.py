"""How many tokens are enough for attention: predicted exactly, measured honestly."""

from attnlimit.curve import Curve
from attnlimit.errors import (
    AttnlimitError,
    BadInput,
    MissingExtra,
    NoLimitError,
    NotConverged,
    UnboundedSupport,
    UnreliableFit,
)
from attnlimit.heads import Head

__version__ = "0.1.0"

__all__ = [
    "AttnlimitError",
    "BadInput",
    "Curve",
    "Head",
    "MissingExtra",
    "NoLimitError",
    "NotConverged",
    "UnboundedSupport",
    "UnreliableFit",
]
