"""What n or infinitely many tokens give, computed: no random numbers here."""

from attnlimit.theory.cooling import CoolingError, cooling_error
from attnlimit.theory.exact import PointwiseError, pointwise_error
from attnlimit.theory.fluctuation import Fluctuation, fluctuation
from attnlimit.theory.gaussian_law import GaussianLaw, gaussian_law
from attnlimit.theory.hardmax import HardmaxError, hardmax_error
from attnlimit.theory.limit import horizon, limit
from attnlimit.theory.moments import covariance_influence, mean_covariance, mean_influence
from attnlimit.theory.predict import predict
from attnlimit.theory.projection import Projection
from attnlimit.theory.rates import Rate, rate
from attnlimit.theory.regimes import Regimes, regimes
from attnlimit.theory.schedule import (
    BestTemperature,
    ScheduleError,
    best_temperature,
    schedule_error,
)
from attnlimit.theory.schemes import SchemeError, kept_error
from attnlimit.theory.uniform import UniformBound, uniform_bound

__all__ = [
    "BestTemperature",
    "CoolingError",
    "Fluctuation",
    "GaussianLaw",
    "HardmaxError",
    "PointwiseError",
    "Projection",
    "Rate",
    "Regimes",
    "ScheduleError",
    "SchemeError",
    "UniformBound",
    "best_temperature",
    "cooling_error",
    "covariance_influence",
    "fluctuation",
    "gaussian_law",
    "hardmax_error",
    "horizon",
    "kept_error",
    "limit",
    "mean_covariance",
    "mean_influence",
    "pointwise_error",
    "predict",
    "rate",
    "regimes",
    "schedule_error",
    "uniform_bound",
]
