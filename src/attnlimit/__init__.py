"""How many tokens are enough for attention: predicted exactly, measured honestly."""

from importlib import import_module
from types import ModuleType

from attnlimit.budgets.budget import budget
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
from attnlimit.head import Head
from attnlimit.montecarlo import RateFit, fit_rate, measure
from attnlimit.samplers import (
    Iid,
    Keep,
    Sampler,
    SinksAndRecent,
    SinksAndWindow,
    Threshold,
    TopK,
    TopP,
    Window,
    WithoutReplacement,
)
from attnlimit.theory import (
    BestTemperature,
    CoolingError,
    GaussianLaw,
    HardmaxError,
    PointwiseError,
    Rate,
    Regimes,
    ScheduleError,
    UniformBound,
    best_temperature,
    cooling_error,
    covariance_influence,
    fluctuation,
    gaussian_law,
    hardmax_error,
    horizon,
    kept_error,
    limit,
    mean_covariance,
    mean_influence,
    pointwise_error,
    predict,
    rate,
    regimes,
    schedule_error,
    uniform_bound,
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
    "BestTemperature",
    "CoolingError",
    "Cube",
    "Curve",
    "Empirical",
    "Gaussian",
    "GaussianLaw",
    "HardmaxError",
    "Head",
    "Iid",
    "Keep",
    "Laplace",
    "MissingExtra",
    "Mixture",
    "NoLimitError",
    "NotConverged",
    "PointwiseError",
    "Rate",
    "RateFit",
    "Regimes",
    "Sampler",
    "ScheduleError",
    "Signs",
    "SinksAndRecent",
    "SinksAndWindow",
    "Sphere",
    "Threshold",
    "Tokens",
    "TopK",
    "TopP",
    "UnboundedSupport",
    "UniformBound",
    "UnreliableFit",
    "Window",
    "WithoutReplacement",
    "best_temperature",
    "budget",
    "cooling_error",
    "covariance_influence",
    "fit_rate",
    "fluctuation",
    "gaussian_law",
    "hardmax_error",
    "horizon",
    "kept_error",
    "limit",
    "mean_covariance",
    "mean_influence",
    "measure",
    "pointwise_error",
    "predict",
    "rate",
    "regimes",
    "schedule_error",
    "uniform_bound",
]


def __getattr__(name: str) -> ModuleType:
    """Import the rooms of real transformers and of sparse tokens when first asked for."""
    if name in ("models", "sparse"):
        return import_module(f"attnlimit.{name}")
    raise AttributeError(f"module 'attnlimit' has no attribute {name!r}")
