"""Are the standard errors of a measurement honest? Many independent ones, and their scatter.

Slices of one long sweep are measurements of their own: the scatter of their values, over the
standard error that they state, should be 1, and 95 % of them should be within two of the truth.
The argument is how many thousand draws there are; with 20, for the table of docs/montecarlo.md, it
takes about five minutes. A draw is one set of tokens here, the most skewed that there is.
"""

import sys
from dataclasses import replace

import numpy as np
import pandas as pd

import attnlimit as al
from attnlimit.montecarlo.measure import samples_curve
from attnlimit.montecarlo.sweep import sweep
from attnlimit.reproduce.temperatures import paper_head

total = 1000 * int(sys.argv[1]) if len(sys.argv) > 1 else 500
n = np.array([50, 100, 200, 400])
cases = [(50, 5), (50, 30), (50, 80), (10, 2), (10, 6)]


def part(samples, rows):
    """The draws `rows` as samples of their own."""
    gram = None if samples.gram is None else samples.gram[rows]
    zeros = [control[rows] for control in samples.zeros]
    return replace(samples, values=samples.values[rows], zeros=zeros, gram=gram)


def rate(curve):
    """The fitted rate and its standard error; nothing where the curve is too noisy for one."""
    try:
        fit = al.fit_rate(curve)
    except al.UnreliableFit:
        return np.nan, np.nan
    return fit.beta, fit.stderr


def summary(samples, draws, control):
    """Scatter over stated error, of the value at n = 200 and of the rate."""
    slices = [slice(at, at + draws) for at in range(0, total, draws)]
    curves = [samples_curve(part(samples, rows), control=control) for rows in slices]
    whole = samples_curve(samples)
    same = samples_curve(samples, control=control)  # on a bent curve the rate depends on weights
    columns = {}
    for name, found, truth in (
        ("value", [(curve.value[2], curve.stderr[2]) for curve in curves], whole.value[2]),
        ("rate", [rate(curve) for curve in curves], rate(same)[0]),
    ):
        values, stated = np.array([pair for pair in found if np.isfinite(pair[0])]).T
        misses = values - truth
        spread = np.sqrt((misses**2).mean())
        columns[f"{name}: scatter / s.e."] = spread / stated.mean()
        columns[f"{name}: / rms s.e."] = spread / np.sqrt((stated**2).mean())
        columns[f"{name}: within 2 s.e."] = (np.abs(misses) < 2 * stated).mean()
    columns["variance / plain"] = np.var([curve.value[2] for curve in curves])
    return columns


rows = []
for dim, scale in cases:
    tokens, head = al.Gaussian(dim=dim, variance=5 / dim), paper_head(dim, scale)
    both, seed = ["mean", "covariance"], np.random.SeedSequence(0)
    draws = sweep(head, tokens, both, n, total, seed, sets=1)
    for statistic, samples in draws.items():
        for replicates in (20, 50, 100):
            plain = summary(samples, replicates, control=False)
            what = {"d": dim, "H": al.horizon(head, tokens), "statistic": statistic}
            for controls, found in (
                (True, summary(samples, replicates, control=True)),
                (False, plain),
            ):
                gained = found | {
                    "variance / plain": found["variance / plain"] / plain["variance / plain"]
                }
                rows.append(what | {"draws": replicates, "controls": controls} | gained)
print(pd.DataFrame(rows).round(3).to_string(index=False))
