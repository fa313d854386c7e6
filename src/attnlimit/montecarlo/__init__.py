"""What n tokens give, drawn: the referee of theory/."""

from attnlimit.montecarlo.fit import RateFit, fit_rate
from attnlimit.montecarlo.measure import measure

__all__ = ["RateFit", "fit_rate", "measure"]
