"""Predictions of the mean output's error at finite n, Gaussian tokens in d = 50.

python studies/finite_n_moments.py [replicates]
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd

import attnlimit as al
from attnlimit.reproduce.temperatures import paper_head
from tables import write_tables

TOKENS = al.Gaussian(dim=50, variance=0.1)
SCALES = (5, 20, 30, 50)
SIZES = [250, 1000, 4000]


def compared(scale: float, replicates: int) -> pd.DataFrame:
    """Root mean square errors of the mean: measured, by the two-query law, by the delta method."""
    head = paper_head(50, scale)
    measured = al.measure(head, TOKENS, "mean", SIZES, replicates, seed=0)
    predicted = al.predict(head, TOKENS, "mean", SIZES)
    delta = np.sqrt(np.trace(al.mean_covariance(head, TOKENS)))
    columns = {
        "scale": scale,
        "horizon": al.horizon(head, TOKENS),
        "n": SIZES,
        "draws": replicates,
        "measured": measured.root,
        "stderr": measured.root_stderr,
        "predicted": predicted.root,
        "prediction_error": predicted.root_numerical_error,
        "delta": delta / np.sqrt(SIZES),
    }
    return pd.DataFrame(columns)


if __name__ == "__main__":
    replicates = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    table = pd.concat([compared(scale, replicates) for scale in SCALES])
    write_tables({"mean-by-scale": table})
