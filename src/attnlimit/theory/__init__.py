"""What n or infinitely many tokens give, computed: no random numbers here."""

from attnlimit.theory.ball.uniform import UniformBound, uniform_bound
from attnlimit.theory.fluctuation import Fluctuation, fluctuation
from attnlimit.theory.law.gaussian import GaussianLaw, gaussian_law
from attnlimit.theory.law.kept import kept_error
from attnlimit.theory.law.pointwise import PointwiseError, pointwise_error
from attnlimit.theory.law.sampled import SamplerLaw
from attnlimit.theory.limit import horizon, limit
from attnlimit.theory.moments import covariance_influence, mean_covariance, mean_influence
from attnlimit.theory.pairs.covariance.projection import Projection
from attnlimit.theory.predict import predict
from attnlimit.theory.rates import Rate, rate
from attnlimit.theory.regimes import Regimes, regimes
from attnlimit.theory.sharp.cooling import CoolingError, cooling_error
from attnlimit.theory.sharp.hardmax import HardmaxError, hardmax_error
from attnlimit.theory.sharp.schedule import (
    BestTemperature,
    ScheduleError,
    best_temperature,
    schedule_error,
)

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
    "SamplerLaw",
    "ScheduleError",
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
