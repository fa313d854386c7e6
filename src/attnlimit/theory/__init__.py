"""What n or infinitely many tokens give, computed: no random numbers here."""

from attnlimit.theory.exact import PointwiseError, pointwise_error
from attnlimit.theory.fluctuation import Fluctuation, fluctuation
from attnlimit.theory.gaussian_law import GaussianLaw, gaussian_law
from attnlimit.theory.limit import horizon, limit

__all__ = [
    "Fluctuation",
    "GaussianLaw",
    "PointwiseError",
    "fluctuation",
    "gaussian_law",
    "horizon",
    "limit",
    "pointwise_error",
]
