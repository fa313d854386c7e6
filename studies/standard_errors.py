"""Are the standard errors of a measurement honest? Many independent ones, and their scatter.

Slices of one long sweep are measurements of their own: the scatter of their values, over the
standard error that they state, should be 1, and 95 % of them should be within two of the truth.
The argument is how many thousand draws there are: 20 by default, about five minutes. A draw is one
set of tokens here, the most skewed that there is.
"""

import sys

import numpy as np
import pandas as pd

import attnlimit as al
from attnlimit.montecarlo.measure import samples_curve
from attnlimit.montecarlo.sweep import sweep
from attnlimit.reproduce.temperatures import paper_head
from kept import keep

TOTAL = 1000 * int(sys.argv[1] if len(sys.argv) > 1 else 20)
SIZES = np.array([50, 100, 200, 400])
AT = 2  # the value is looked at for n = 200
CASES = ((50, 5), (50, 30), (50, 80), (10, 2), (10, 6))


def rate(curve):
    """The fitted rate and its standard error; nothing where the curve is too noisy for one."""
    try:
        fit = al.fit_rate(curve)
    except al.UnreliableFit:
        return np.nan, np.nan
    return fit.beta, fit.stderr


def honesty(name, values, stated, truth):
    """Scatter over stated error and the share within two of them, each with its own error."""
    known = np.isfinite(values)
    stated, squares = stated[known], (values[known] - truth) ** 2
    spread, count = np.sqrt(squares.mean()), known.sum()
    within = (squares < 4 * stated**2).mean()
    ratio = spread / stated.mean()
    moved = (squares / squares.mean() - 1) / 2 - (stated / stated.mean() - 1)
    return {
        f"{name} scatter": ratio,
        f"{name} scatter stderr": ratio * moved.std() / np.sqrt(count),
        f"{name} scatter over rms": spread / np.sqrt((stated**2).mean()),
        f"{name} within": within,
        f"{name} within stderr": np.sqrt(within * (1 - within) / count),
        f"{name} measurements": int(count),
    }


def summary(samples, draws, control):
    """What measurements of so many draws state, and their variance."""
    slices = [slice(at, at + draws) for at in range(0, TOTAL, draws)]
    curves = [samples_curve(samples.part(rows), control=control) for rows in slices]
    values, stated = np.array([(curve.value[AT], curve.stderr[AT]) for curve in curves]).T
    rates, rate_errors = np.array([rate(curve) for curve in curves]).T
    same = samples_curve(samples, control=control)  # on a bent curve the rate depends on weights
    return {
        "variance": values.var(),
        **honesty("value", values, stated, samples_curve(samples).value[AT]),
        **honesty("rate", rates, rate_errors, rate(same)[0]),
    }


rows = []
for dim, scale in CASES:
    tokens, head = al.Gaussian(dim=dim, variance=5 / dim), paper_head(dim, scale)
    both, seed = ["mean", "covariance"], np.random.SeedSequence(0)
    for statistic, samples in sweep(head, tokens, both, SIZES, TOTAL, seed, sets=1).items():
        for draws in (20, 50, 100):
            plain, found = (summary(samples, draws, control) for control in (False, True))
            rows.append(
                {
                    "d": dim,
                    "H": al.horizon(head, tokens),
                    "statistic": statistic,
                    "n": int(SIZES[AT]),
                    "draws": draws,
                    "variance left": found["variance"] / plain["variance"],
                    **found,
                    **{f"plain {name}": one for name, one in plain.items()},
                }
            )
keep(pd.DataFrame(rows))
