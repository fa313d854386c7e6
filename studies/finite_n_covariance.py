"""Is the covariance of the outputs predicted at every n, from weak to frozen attention?

Run: python studies/finite_n_covariance.py [draws]

The paper's Gaussian setting (d = 50, variance 0.1): root mean square error of the outputs'
covariance, measured with control variates and predicted.
"""

import sys

import numpy as np
import pandas as pd

from attnlimit import Gaussian, horizon, predict
from attnlimit.montecarlo.measure import samples_curve
from attnlimit.montecarlo.sweep import sweep
from attnlimit.reproduce.temperatures import paper_head
from kept import keep

SCALES = (0.05, 1.15, 4.05, 7.59, 14.22, 26.66, 50.0)
COUNTS = (100, 250, 500, 1000)
SEED = 5

draws = int(sys.argv[1]) if len(sys.argv) > 1 else 100
tokens = Gaussian(dim=50, variance=0.1)
parts = []
for scale in SCALES:
    head = paper_head(50, scale)
    seed = np.random.SeedSequence(SEED)
    found = sweep(head, tokens, ("mean", "covariance"), np.array(COUNTS), draws, seed)
    drawn = samples_curve(found["covariance"])
    law = predict(head, tokens, "covariance", COUNTS)
    columns = {
        "scale": scale,
        "horizon": horizon(head, tokens),
        "n": COUNTS,
        "draws": draws,
        "measured": drawn.root,
        "stderr": drawn.root_stderr,
        "predicted": law.root,
        "prediction_error": law.root_numerical_error,
    }
    parts.append(pd.DataFrame(columns))
keep(pd.concat(parts))
