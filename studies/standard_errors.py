"""Standard errors of measurements against the scatter of many.

Slices of one long sweep are measurements of their own: the scatter of their values, over the
standard error that they state, should be 1, and 95 % of them should be within two of the truth.
The argument is how many thousand draws there are. A draw is one set of tokens here, the most skewed
that there is.
"""

import sys

import numpy as np
import pandas as pd

import attnlimit as al
from attnlimit.reproduce.temperatures import paper_head
from attnlimit.simulate.measure import samples_curve
from attnlimit.simulate.sweep import sweep
from tables import write_tables

TOTAL = 1000 * int(sys.argv[1] if len(sys.argv) > 1 else 10)
SIZES = np.array([50, 100, 200, 400])
AT = 2  # the value is looked at for n = 200
CASES = ((50, 5), (50, 30), (50, 80), (10, 2), (10, 6))


def summary(samples, draws, control, truth):
    """Scatter over stated error and the share within two of them, each with its own error."""
    slices = [slice(at, at + draws) for at in range(0, TOTAL, draws)]
    curves = [samples_curve(samples.part(rows), control=control) for rows in slices]
    values, stated = np.array([(curve.value[AT], curve.stderr[AT]) for curve in curves]).T
    squares = (values - truth) ** 2
    spread, count = np.sqrt(squares.mean()), len(values)
    within = (squares < 4 * stated**2).mean()
    ratio = spread / stated.mean()
    moved = (squares / squares.mean() - 1) / 2 - (stated / stated.mean() - 1)
    return {
        "variance": values.var(),
        "scatter": ratio,
        "scatter stderr": ratio * moved.std() / np.sqrt(count),
        "scatter over rms": spread / np.sqrt((stated**2).mean()),
        "within": within,
        "within stderr": np.sqrt(within * (1 - within) / count),
        "measurements": count,
    }


rows = []
for dim, scale in CASES:
    tokens, head = al.Gaussian(dim=dim, variance=5 / dim), paper_head(dim, scale)
    both, seed = ["mean", "covariance"], np.random.SeedSequence(0)
    for statistic, samples in sweep(head, tokens, both, SIZES, TOTAL, seed, sets=1).items():
        truth = samples_curve(samples).value[AT]
        for draws in (20, 100):
            plain, actual = (summary(samples, draws, control, truth) for control in (False, True))
            rows.append(
                {
                    "d": dim,
                    "H": al.horizon(head, tokens),
                    "statistic": statistic,
                    "n": int(SIZES[AT]),
                    "draws": draws,
                    "variance left": actual["variance"] / plain["variance"],
                    **actual,
                    **{f"plain {name}": entry for name, entry in plain.items()},
                }
            )
write_tables({"scatter-over-stated": pd.DataFrame(rows)})
