"""What n tokens give, drawn: the referee of theory/."""

from attnlimit.simulate.fit import RateFit, fit_rate
from attnlimit.simulate.measure import measure
from attnlimit.simulate.sampled import sampled_errors

__all__ = ["RateFit", "fit_rate", "measure", "sampled_errors"]
