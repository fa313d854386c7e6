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
from attnlimit.montecarlo import (
    Iid,
    Keep,
    RateFit,
    SinksAndRecent,
    TopK,
    Window,
    WithoutReplacement,
    fit_rate,
    measure,
)
from attnlimit.theory import (
    GaussianLaw,
    PointwiseError,
    fluctuation,
    gaussian_law,
    horizon,
    limit,
    pointwise_error,
)
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
    "GaussianLaw",
    "Head",
    "Iid",
    "Keep",
    "Laplace",
    "MissingExtra",
    "Mixture",
    "NoLimitError",
    "NotConverged",
    "PointwiseError",
    "RateFit",
    "Signs",
    "SinksAndRecent",
    "Sphere",
    "Tokens",
    "TopK",
    "UnboundedSupport",
    "UnreliableFit",
    "Window",
    "WithoutReplacement",
    "fit_rate",
    "fluctuation",
    "gaussian_law",
    "horizon",
    "limit",
    "measure",
    "pointwise_error",
]
