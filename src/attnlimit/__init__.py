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
from attnlimit.tokens import (
    Ball,
    Cube,
    Empirical,
    Gaussian,
    Laplace,
    Mixture,
    Signs,
    Sphere,
    Tokens,
)

__version__ = "0.1.0"

__all__ = [
    "AttnlimitError",
    "BadInput",
    "Ball",
    "Cube",
    "Curve",
    "Empirical",
    "Gaussian",
    "Head",
    "Laplace",
    "MissingExtra",
    "Mixture",
    "NoLimitError",
    "NotConverged",
    "Signs",
    "Sphere",
    "Tokens",
    "UnboundedSupport",
    "UnreliableFit",
]
