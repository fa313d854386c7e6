"""Error of the mean output on spheres of few dimensions, from weak to frozen scores.

n times the mean squared error: the argument is the number of draws.
"""

import sys

import numpy as np
import pandas as pd

import attnlimit as al
from tables import write_tables

CASES = ((3, 1), (3, 10), (10, 1), (10, 10), (10, 100), (10, 100_000))
SIZES = [100, 1000, 10_000]

draws = int(sys.argv[1]) if len(sys.argv) > 1 else 400
parts = []
for dim, scale in CASES:
    rng = np.random.default_rng(dim)
    score, value = (factor * rng.standard_normal((dim, dim)) / dim**0.5 for factor in (scale, 1))
    head, tokens = al.Head(score, value), al.Sphere(dim)
    law = al.predict(head, tokens, "mean", SIZES)
    drawn = al.measure(head, tokens, "mean", SIZES, draws, seed=1)
    columns = {
        "dim": dim,
        "scale": scale,
        "horizon": al.horizon(head, tokens),
        "n": SIZES,
        "draws": draws,
        "measured": SIZES * drawn.value,
        "stderr": SIZES * drawn.stderr,
        "predicted": SIZES * law.value,
        "prediction_error": SIZES * law.numerical_error,
    }
    parts.append(pd.DataFrame(columns))
write_tables({"mean-on-small-spheres": pd.concat(parts)})
