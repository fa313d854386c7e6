"""Do 95 % intervals hold the truth 95 times of 100? Two hundred seeds of each statistic.

A measurement is 50 draws, or 200 where they are most skewed; the truth is the average of all seeds.
Symmetric intervals of 1.96 standard errors are beside those of `Curve.interval`. For the table of
docs/montecarlo.md; it takes a few minutes, fewer with fewer seeds as the argument.
"""

import sys

import numpy as np
import pandas as pd

import attnlimit as al
from attnlimit.models import from_arrays
from attnlimit.reproduce.temperatures import paper_head

SEEDS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
N = [12, 24, 48, 96]
RNG = np.random.default_rng(0)
CAPTURE = from_arrays(*RNG.standard_normal((3, 64, 8)), causal=False)
HEADS = {
    "Gaussian, d = 3": (al.Head(RNG.standard_normal((3, 3)) / 2), al.Gaussian(dim=3)),
    "Gaussian, d = 10, H = 0.62": (paper_head(10, 2), al.Gaussian(dim=10, variance=0.5)),
    "sphere, d = 5": (al.Head(3 * np.eye(5)), al.Sphere(5)),
}


def within(ends, truth):
    low, high = ends
    return (low <= truth) & (truth <= high)


def case(what, statistic, measure, draws):
    """Coverage over all n, and of the rate."""
    curves = [measure(statistic, draws, seed) for seed in range(SEEDS)]
    truth = np.mean([curve.value for curve in curves], axis=0)
    stated = np.array([curve.stderr for curve in curves])
    values = np.array([curve.value for curve in curves])
    fits = []
    for curve in curves:
        try:
            fits.append(al.fit_rate(curve))
        except al.UnreliableFit:  # a curve too noisy for a rate
            continue
    slope = np.mean([fit.beta for fit in fits])
    return {
        "tokens": what,
        "statistic": statistic,
        "draws": draws,
        "scatter / s.e.": (values.std(axis=0) / stated.mean(axis=0)).mean(),
        "value +- 1.96 s.e.": (np.abs(values - truth) < 1.96 * stated).mean(),
        "interval": np.mean([within(curve.interval(), truth) for curve in curves]),
        "rate's interval": np.mean([within(fit.interval(), slope) for fit in fits]),
        "rates refused": 1 - len(fits) / SEEDS,
    }


def of_head(head, tokens):
    def measure(statistic, draws, seed):
        return al.measure(head, tokens, statistic, N, draws, seed=seed)

    return measure


def of_capture(statistic, draws, seed):
    return al.measure(CAPTURE, statistic, N, draws, seed=seed)


CASES = [(what, name, 50) for what in HEADS for name in ("pointwise", "mean", "covariance")]
CASES += [("captured head", name, 50) for name in ("pointwise", "mean", "covariance")]
CASES += [("Gaussian, d = 10, H = 0.62", "covariance", 200)]

for k, (what, statistic, draws) in enumerate(CASES):
    measure = of_head(*HEADS[what]) if what in HEADS else of_capture
    row = pd.DataFrame([case(what, statistic, measure, draws)]).round(3)
    print(row.to_csv(sep="|", index=False, header=k == 0), end="", flush=True)
