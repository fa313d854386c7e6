"""What will measuring a model or drawing tokens cost? Exact counts, times rates measured here."""

from attnlimit.cost.cluster import Cluster, Simulated, simulate
from attnlimit.cost.rates import Rates, Timing, fit_rates
from attnlimit.cost.shape import NAMED, Shape

__all__ = ["NAMED", "Cluster", "Rates", "Shape", "Simulated", "Timing", "fit_rates", "simulate"]
