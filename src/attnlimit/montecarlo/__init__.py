"""What n tokens give, drawn: the referee of theory/."""

from attnlimit.montecarlo.fit import RateFit, fit_rate
from attnlimit.montecarlo.measure import measure
from attnlimit.montecarlo.sampled import sampled_errors

__all__ = ["RateFit", "fit_rate", "measure", "sampled_errors"]
