"""How many tokens are enough for attention: predicted exactly, measured honestly.

Public names load when first used, so that `import attnlimit` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # functions named like their module come from it, or a checker sees the module
    from attnlimit import models, sparse
    from attnlimit.budgets.budget import budget
    from attnlimit.curve import Curve, Diagnostics
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
    from attnlimit.montecarlo import RateFit, fit_rate
    from attnlimit.montecarlo.measure import measure
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
        Fluctuation,
        GaussianLaw,
        HardmaxError,
        PointwiseError,
        Rate,
        Regimes,
        SamplerLaw,
        ScheduleError,
        UniformBound,
        best_temperature,
        cooling_error,
        covariance_influence,
        gaussian_law,
        hardmax_error,
        horizon,
        kept_error,
        mean_covariance,
        mean_influence,
        pointwise_error,
        rate,
        schedule_error,
        uniform_bound,
    )
    from attnlimit.theory.fluctuation import fluctuation
    from attnlimit.theory.limit import limit
    from attnlimit.theory.predict import predict
    from attnlimit.theory.regimes import regimes
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
    "Diagnostics",
    "Empirical",
    "Fluctuation",
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
    "SamplerLaw",
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
    "models",
    "pointwise_error",
    "predict",
    "rate",
    "regimes",
    "schedule_error",
    "sparse",
    "uniform_bound",
]

# Where each name comes from. A new one is also imported above, for type checkers, and in __all__.
_HOME = {
    "attnlimit.budgets.budget": "budget",
    "attnlimit.curve": "Curve Diagnostics",
    "attnlimit.errors": (
        "AttnlimitError BadInput MissingExtra NoLimitError NotConverged UnboundedSupport "
        "UnreliableFit"
    ),
    "attnlimit.head": "Head",
    "attnlimit.montecarlo": "RateFit fit_rate measure",
    "attnlimit.samplers": (
        "Iid Keep Sampler SinksAndRecent SinksAndWindow Threshold TopK TopP Window "
        "WithoutReplacement"
    ),
    "attnlimit.theory": (
        "BestTemperature CoolingError Fluctuation GaussianLaw HardmaxError PointwiseError Rate "
        "Regimes SamplerLaw ScheduleError UniformBound best_temperature cooling_error "
        "covariance_influence fluctuation gaussian_law hardmax_error horizon kept_error limit "
        "mean_covariance mean_influence pointwise_error predict rate regimes schedule_error "
        "uniform_bound"
    ),
    "attnlimit.tokens": "Ball Cube Empirical Gaussian Laplace Mixture Signs Sphere Tokens",
}
_MODULE = {name: module for module, names in _HOME.items() for name in names.split()}
_ROOMS = ("models", "sparse")

if not TYPE_CHECKING:  # a checker knows the names above, and that there are no others

    def __getattr__(name: str) -> object:
        """Import a public name from its room, and keep it."""
        if name in _ROOMS:
            return import_module(f"attnlimit.{name}")
        if name not in _MODULE:
            raise AttributeError(f"module 'attnlimit' has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_MODULE[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
