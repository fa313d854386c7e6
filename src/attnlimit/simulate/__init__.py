"""What n tokens give, drawn: the referee of theory/."""

from attnlimit.simulate.fit import RateFit, fit_rate
from attnlimit.simulate.measure import measure

__all__ = ["RateFit", "fit_rate", "measure"]
