"""What n tokens give, drawn: the referee of theory/."""

from attnlimit.montecarlo.fit import RateFit, fit_rate
from attnlimit.montecarlo.measure import measure
from attnlimit.montecarlo.samplers import (
    Iid,
    Keep,
    Sampler,
    SinksAndRecent,
    TopK,
    Window,
    WithoutReplacement,
    sampled_errors,
)
from attnlimit.montecarlo.sinks_and_window import SinksAndWindow

__all__ = [
    "Iid",
    "Keep",
    "RateFit",
    "Sampler",
    "SinksAndRecent",
    "SinksAndWindow",
    "TopK",
    "Window",
    "WithoutReplacement",
    "fit_rate",
    "measure",
    "sampled_errors",
]
