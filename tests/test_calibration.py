"""Are predictions as good as they say? One list of all that predicts, measured at small sizes.

z is the distance of a prediction from its measurement in combined errors: those of both. Few may be
beyond three, and the typical one must be near that of a normal variable: errors that are too large
say as little as errors that are too small.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pandas as pd
import pytest

import attnlimit as al
from attnlimit.curve import Curve
from attnlimit.models import from_arrays
from attnlimit.reproduce import run
from attnlimit.reproduce.compare import OWN, with_z

BEYOND, WITHIN = 3.0, 0.98
MEDIAN = (0.4, 1.1)
RNG = np.random.default_rng(7)
HEAD = al.Head(RNG.standard_normal((3, 3)), RNG.standard_normal((2, 3)))
POINTS = RNG.standard_normal((40, 3))
CAPTURE = from_arrays(*RNG.standard_normal((3, 48, 6)), causal=False, scale=0.8)
CAUSAL = from_arrays(*RNG.standard_normal((3, 32, 6)), scale=0.6)
COUNTS = [6, 20, 60]


def side_by_side(law: Curve, drawn: Curve) -> pd.DataFrame:
    values = {"predicted": law.root, "measured": drawn.root, "stderr": drawn.root_stderr}
    own = 0.0 if law.numerical_error is None else law.root_numerical_error
    return pd.DataFrame(values | {OWN: own})


def of_head(tokens: al.Tokens, statistic: str, n: list[int] = COUNTS) -> Callable[[], pd.DataFrame]:
    def rows() -> pd.DataFrame:
        draws = 300 if statistic == "pointwise" else 60  # of several sets of tokens
        drawn = al.measure(HEAD, tokens, statistic, n, draws, seed=3)
        return side_by_side(al.predict(HEAD, tokens, statistic, n), drawn)

    return rows


def of_capture(
    capture: al.models.Capture, statistic: str, n: list[int], sampler: al.Sampler | None = None
) -> Callable[[], pd.DataFrame]:
    def rows() -> pd.DataFrame:
        law = al.predict(capture, statistic, n, sampler=sampler)
        return side_by_side(law, al.measure(capture, statistic, n, 400, seed=5, sampler=sampler))

    return rows


def of_experiment(name: str, **settings: object) -> Callable[[], pd.DataFrame]:
    def rows() -> pd.DataFrame:
        found = run(name, settings, seed=1)
        return found.experiment.compared(found.config, found.curves)

    return rows


CASES = {
    "pointwise, Gaussian": of_head(al.Gaussian(dim=3), "pointwise"),
    "mean, Gaussian": of_head(al.Gaussian(dim=3), "mean"),
    "covariance, Gaussian": of_head(al.Gaussian(dim=3), "covariance", [60, 200]),
    "mean, sphere": of_head(al.Sphere(3), "mean", [20, 60]),
    "pointwise, sphere": of_head(al.Sphere(3), "pointwise"),
    "pointwise, 40 tokens": of_head(al.Empirical(POINTS), "pointwise"),
    "mean, 40 tokens": of_head(al.Empirical(POINTS), "mean"),
    "pointwise, captured": of_capture(CAPTURE, "pointwise", COUNTS),
    "mean, captured": of_capture(CAPTURE, "mean", COUNTS),
    "covariance, captured": of_capture(CAPTURE, "covariance", [6, 60]),
    "covariance, captured, causal": of_capture(CAUSAL, "covariance", [20]),
    "mean, captured, causal": of_capture(CAUSAL, "mean", COUNTS),
    "without replacement": of_capture(CAPTURE, "pointwise", [6, 20], al.WithoutReplacement()),
    "mean, without replacement": of_capture(CAPTURE, "mean", [4, 12, 40], al.WithoutReplacement()),
    "mean, without, causal": of_capture(CAUSAL, "mean", [4, 20], al.WithoutReplacement()),
    "top and sampled": of_capture(CAPTURE, "pointwise", [6, 20], al.Keep(al.TopK(1), 1)),
    "mean, top and sampled": of_capture(CAPTURE, "mean", [6, 20], al.Keep(al.TopK(1), 1)),
    "central limit": of_experiment(
        "clt", horizons=[0.6, 1.2], n=[30, 300], replicates=300, block=300
    ),
    "critical temperature": of_experiment(
        "critical-temperature", cases=[[5, [0.3, 3.0]]], n=[100], far=[1000], replicates=400
    ),
    "signal known": of_experiment("sparse-oracle", strengths=[1.0, 3.0], draws=4000),
}


@cache
def distances(case: str) -> np.ndarray:
    return with_z(CASES[case]())["z"].dropna().abs().to_numpy()


@pytest.mark.parametrize("case", CASES)
def test_no_prediction_is_far_off(case):
    assert (distances(case) < BEYOND + 1).all()


def test_all_together_are_calibrated():
    z = np.concatenate([distances(case) for case in CASES])
    assert (z <= BEYOND).mean() >= WITHIN
    assert MEDIAN[0] <= np.median(z) <= MEDIAN[1]
