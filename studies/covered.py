"""Experiments counted in studies/interval_coverage.py: settings and draws."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnlimit.reproduce.compare import TYPICAL
from sparse_check import SETTINGS

N = [12, 24, 48, 96]
SCALES = {"dim": 4, "scales": [2.0], "n": N, "replicates": 50, "block": 50}
BERT = {"tokens": 48, "layers": [0], "heads": 2}
ARTICLE = [["sotu:Lincoln 1861", 24]]
OUTPUT = {
    "texts": ARTICLE,
    "samplers": ["threshold:16"],
    "probes": 8,
    "repeats": 8,
    "encoder_texts": ARTICLE,
    "encoder_samplers": ["threshold:16"],
    "encoder_probes": 8,
    "encoder_repeats": 8,
}


def sharing(points: int, draws: int = 8) -> int:
    """Draws behind a standard error that so many points of a kind share (`shared_scatter`)."""
    own = np.full(points, TYPICAL / points) + (draws - 1) * np.eye(points)[0]
    return round((draws - 1) * own.sum() ** 2 / (own**2).sum()) + 1


@dataclass(frozen=True)
class Counted:
    """Settings, and draws behind a standard error, by what is measured where they differ."""

    settings: dict[str, Any]
    draws: int | dict[str, int]
    drawn: int | None = None
    """Draws as they are shown, if not those behind a standard error."""
    predicted: dict[str, list[str]] = field(default_factory=dict)
    """Modules and functions of predictions that are the same for every seed."""
    by: str | None = None
    """The column that says what is measured."""
    measured: str = "measured"
    stderr: str = "stderr"
    rows: str = "with_errors"
    """Which of a result's tables has them."""


SYNTHETIC = {
    "gaussian": Counted(SCALES, 50, predicted={"temperatures": ["predict"]}, by="statistic"),
    "sphere": Counted(SCALES, 50, predicted={"temperatures": ["predict"]}, by="statistic"),
    "hardmax": Counted(
        {
            "cases": [["gaussian", 3], ["cube", 3]],
            "n": [10, 100],
            "far": [1000],
            "replicates": 40,
            "block": 40,
        },
        40,
        predicted={"hardmax": ["hardmax_error"]},
    ),
    "clt": Counted(
        {"horizons": [0.3, 0.6], "n": [30, 300], "replicates": 200, "block": 200},
        200,
        predicted={"clt": ["integrated_variance", "limit_deviation"]},
    ),
    "heavy": Counted(
        {
            "horizons": [1.5],
            "n": [100, 300],
            "replicates": 200,
            "block": 200,
            "sigmas": [0.5, 2.0, 6.0],
            "frozen_n": [30, 300],
            "frozen_draws": 200,
            "laplace_n": [30, 300, 3000],
            "laplace_draws": 200,
        },
        200,
        predicted={"heavy": ["gaussian_law", "_laplace_law"]},
        by="kind",
    ),
    "uniform": Counted(
        {"cases": [["gaussian", 2, [0.5]]], "n": [100], "replicates": 12, "block": 12},
        12,
        predicted={"uniform": ["uniform_bound"]},
        measured="sup",
    ),
}
TRAINED = {
    "sparse-curves": Counted(
        {"dim": 30, "replicates": 8, "alphas": [1.0, 3.0], "lines": 0},
        sharing(points=2),
        8,
        {"sparse_curves": ["learning_curve", "query_alignment"]},
        "quantity",
    ),
    "sparse-alignment": Counted(
        {"dim": 40, "replicates": 8, "alphas": [2.0], "lines": 0},
        8,
        predicted={"sparse_alignment": ["query_alignment"]},
        by="quantity",
    ),
    "sparse-phase": Counted(
        {"strengths": [2.0], "alphas": [2.0], "checked": [[4.0, 2.0]], "dim": 30, "replicates": 8},
        sharing(points=1),
        8,
        {"sparse_phase": ["best_split", "readout"]},
    ),
}
TESTED = {
    "sparse-check": Counted(
        {
            "settings": [SETTINGS[k] for k in (1, 3, 6, 10, 13)],
            "dims": [20, 40],
            "replicates": [8, 8],
        },
        8,
        predicted={"sparse_check": ["readout"]},
        by="quantity",
    ),
    "sparse-length": Counted(
        {"sharpnesses": [0.0, 2.0], "lengths": [10, 20], "dim": 40, "replicates": 8},
        8,
        predicted={"sparse_length": ["readout", "transfer_error", "oracle_error"]},
    ),
    "sparse-oracle": Counted(
        {"strengths": [1.0, 3.0], "draws": 1000},
        1000,
        predicted={
            "sparse_oracle": ["bayes_error", "oracle_error"],
            "sparse_known_signal": ["oracle_error"],
        },
        by="quantity",
    ),
    "sparse-separation": Counted(
        {"lengths": [16], "draws": 1000},
        1000,
        predicted={
            "sparse_known_signal": ["strength_needed", "oracle_error"],
        },
    ),
}
SEPARABLE = {
    "sparse-capacity": Counted(
        {
            "strengths": [2.0],
            "ratios": [0.6, 0.8, 1.0, 1.2, 1.4],
            "replicates": 12,
            "dims": {"attention": 12, "pooled": 12, "vectorized": 6},
        },
        1000,
        12,
        {"sparse_capacity": ["capacity"]},
        measured="alpha_star measured",
        stderr="alpha_star stderr",
        rows="table",
    ),
}
MODELS = {
    "heads": Counted(
        BERT
        | {"pointwise_n": [8], "mean_n": [8], "pointwise_replicates": 40, "mean_replicates": 100},
        {"pointwise": 40, "mean": 100},
        by="statistic",
    ),
    "bert": Counted(BERT | {"n": [8, 12, 16, 24], "replicates": 40}, 40, by="statistic"),
    "window": Counted(
        BERT | {"random": 8, "n": [16, 24, 32], "shown_n": 24, "replicates": 20}, 20, by="scheme"
    ),
    "longdoc": Counted(
        {
            "tokens": 160,
            "layers": [0, 3],
            "heads": [0, 4],
            "queries": 8,
            "n": [16, 64],
            "measured_n": 64,
            "replicates": 10,
        },
        10,
        by="scheme",
    ),
}
OUTPUTS = {
    "output-error": Counted(OUTPUT, 8, by="model", stderr="measured_stderr"),
    "output-error, probes": Counted(
        OUTPUT, 8, by="model", measured="predicted", stderr="predicted_stderr"
    ),
}
"""What stands before a comma is the experiment."""
