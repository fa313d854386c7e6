"""A plan for bags without any training: errors that a pilot might have shown."""

import numpy as np

from attnlimit.bags.forecast import Prior, forecast, learning_law
from attnlimit.bags.pilot import LAWS, THEORY, PilotErrors, poolings
from attnlimit.bags.planner import BagPlan

HOSTILE = "<img src=x onerror=alert(1)>"
ERRORS = {
    "mean pooling": (0.42, 0.38, 0.35),
    "max pooling": (0.45, 0.42, 0.4),
    "attention": (0.25, 0.12, 0.06),
    "joint attention": (0.3, 0.15, 0.08),
}


def made_plan(bags=200, errors=ERRORS):
    """Return a plan whose poolings have erred so on a pilot."""
    rng = np.random.default_rng(0)
    sizes = np.array([48, 88, 160])
    rates = np.array([errors[name] for name in LAWS])[..., None]
    pilot = PilotErrors(tuple(LAWS), sizes, (rng.random((bags,)) < rates).astype(float), 5, 1)
    angles = pilot.angles()
    forecasts = {
        name: forecast(
            [learning_law(LAWS[name], 10, 1, 0.5)],
            sizes,
            angles[place],
            bags=bags,
            correlation=pilot.correlation(place),
            dim=20,
        )
        for place, name in enumerate(LAWS)
    }
    priors = {name: Prior(5.0, 20.0, 0.05) for name in THEORY}
    budgets = np.array([200, 800])
    return BagPlan(pilot, forecasts, budgets, poolings(None), None, priors, 0.5)
