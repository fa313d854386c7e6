"""Every sparse experiment runs at a tiny size, through its table, its figure and its page."""

import json

import numpy as np
import pytest

from attnlimit.reproduce import EXPERIMENTS, load, run
from attnlimit.reproduce.result import write_report
from attnlimit.runs import RunFolder
from same_marks import check_marks, surer
from sparse_check import SETTINGS
from studied import experiment_studies, target

PLANNED = {"budgets": [60], "replicates": 2, "test_bags": 50}
TINY = {
    "sparse-curves": {"dim": 40, "replicates": 4, "alphas": [1.0], "lines": 3},
    "sparse-alignment": {"dim": 60, "replicates": 4, "alphas": [2.0], "lines": 3},
    "sparse-capacity": {
        "strengths": [0.0, 2.0],
        "ratios": [0.6, 1.0, 1.6],
        "replicates": 6,
        "dims": {"attention": 15, "pooled": 15, "vectorized": 5},
    },
    "sparse-oracle": {"strengths": [3.0], "length": 6, "signals": 2, "prior": 0.4, "draws": 4000},
    "sparse-separation": {"lengths": [16], "draws": 2000},
    "sparse-phase": {
        "strengths": [2.0],
        "alphas": [2.0],
        "checked": [[4.0, 2.0]],
        "dim": 40,
        "replicates": 4,
    },
    "sparse-length": {"sharpnesses": [0.0, 2.0], "lengths": [10, 20], "dim": 60, "replicates": 4},
    "sparse-check": {"settings": SETTINGS[:2], "dims": [20, 80], "replicates": [4, 4]},
    "sparse-digits": PLANNED | {"digits": [0], "pilot": 40},
    "sparse-benchmarks": {"sets": ["digits"], "drawn": 36},
    "sparse-gaussian": PLANNED | {"dim": 6, "pilot": 40},
    "sparse-enough": {
        "sets": ["digits"],
        "drawn": 16,
        "length": 6,
        "samplers": ["without-replacement:1", "threshold:1"],
        "n": [2, 4],
        "draws": 400,
        "fits": 2,
    },
    "sparse-documents": PLANNED
    | {"articles": ["A Modest Proposal"], "background": 4, "per_article": 20, "pilot": 31},
}
COLUMNS = {
    "sparse-curves": {"model", "alpha", "test_error", "test_error measured", "train_margin"},
    "sparse-alignment": {"setting", "alpha0", "lr_w", "cosine", "cosine stderr", "constant"},
    "sparse-capacity": {"model", "alpha_star", "alpha_star measured", "separable at 0.6"},
    "sparse-oracle": {"bayes", "linear measured", "attention stderr", "bayes numerical error"},
    "sparse-separation": {"length", "bayes", "linear", "attention error", "sqrt(2 log L)"},
    "sparse-phase": {"strength", "attention", "vectorized measured", "best", "query's share"},
    "sparse-length": {"length", "tau 0", "tau 2 measured", "oracle"},
    "sparse-check": {"setting", "predicted", "measured", "z", "z extrapolated"},
    "sparse-digits": {"digit", "test", "bags", "pooling", "predicted", "measured"},
    "sparse-benchmarks": {"set", "pooling", "predicted", "low", "high", "measured", "holds"},
    "sparse-enough": {"set", "fit", "sampler", "n", "feature error", "decision changed, drawn"},
    "sparse-gaussian": {"strength", "test", "bags", "pooling", "predicted", "measured"},
    "sparse-documents": {"article", "test", "bags", "pooling", "predicted", "measured"},
}
QUANTITIES = (
    "test_error",
    "cosine",
    "error",
    "bayes",
    "attention",
    "pooled",
    "feature error",
    "decision changed",
)
NEEDS_SKLEARN = {
    f"sparse-{name}" for name in ("digits", "documents", "benchmarks", "enough", "gaussian")
}
SLACK = {
    "sparse-curves": 0.05,
    "sparse-alignment": 0.2,
    "sparse-oracle": 0.0,
    "sparse-separation": 0.0,
    "sparse-phase": 0.05,
    "sparse-length": 0.05,
    "sparse-check": 0.05,
    "sparse-enough": 0.001,
}


def test_every_sparse_experiment_is_tried_here():
    assert (
        set(TINY)
        == set(COLUMNS)
        == {name for name in {*EXPERIMENTS, *experiment_studies()} if "sparse" in name}
    )


@pytest.mark.parametrize("name", TINY)
def test_experiment_runs_and_draws(name, tmp_path, request):
    if name == "sparse-documents":
        request.getfixturevalue("text_and_model")
    if name in NEEDS_SKLEARN:
        pytest.importorskip("sklearn")
    result = run(target(name), TINY[name], out=tmp_path)
    assert COLUMNS[name] <= set(result.table.columns)
    assert not result.table.empty
    assert all(sentence.endswith(".") for sentence in result.remarks)
    assert all(path.stat().st_size > 5000 for path in result.draw(tmp_path))
    for series in (series for panel in result.figure.panels for series in panel.series):
        assert len(series.x) == len(series.y) > 0
    if name in EXPERIMENTS:
        page = write_report(RunFolder(result.folder)).read_text()
        assert result.experiment.title.split(":")[0] in page
    assert json.dumps(load(target(name)).config(True))
    curves = result.curves
    check_marks(result)
    check_marks(surer(result))
    if name in SLACK:
        agree(curves[curves["quantity"].isin(QUANTITIES)], SLACK[name])


def agree(curves, slack):
    """Predictions are as near to what was drawn as noise and so few dimensions allow."""
    drawn = curves.dropna(subset=["measured"])
    assert len(drawn)
    gap = (drawn["measured"] - drawn["predicted"]).abs()
    assert (gap <= 4 * drawn["stderr"] + slack).all()


@pytest.mark.parametrize(
    ("name", "overrides", "predicted"),
    [
        ("sparse-curves", {"dim": 0, "lines": 0, "cosine": 0.8, "models": ["attention"]}, 6),
        ("sparse-alignment", {"dim": 0, "lines": 0, "best": True, "alphas": [2.0]}, 4),
        ("sparse-capacity", {"dims": {"pooled": 0}, "strengths": [0.0, 2.0]}, 2),
        ("sparse-oracle", {"draws": 0, "strengths": [1.0, 5.0]}, 2),
    ],
)
def test_theory_alone_needs_no_draws(name, overrides, predicted):
    result = run(name, overrides)
    assert result.curves["measured"].isna().all()
    assert len(result.table) == predicted
    assert not any("measured" in column for column in result.table)


def test_the_best_steps_have_the_largest_cosine():
    shared = {"dim": 0, "lines": 0, "alphas": [1.0]}
    plain, best = (
        run("sparse-alignment", shared | {"best": best}).table["cosine"].to_numpy()
        for best in (False, True)
    )
    assert (best >= plain - 5e-3).all()  # a search on a grid, smaller steps first
    assert best[-1] > 0 > plain[-1]


def test_linear_programs_find_the_capacity():
    sizes = {
        "strengths": [2.0],
        "ratios": [0.8, 1.0, 1.2],
        "replicates": 20,
        "dims": {"attention": 40, "pooled": 40, "vectorized": 10},
    }
    table = run("sparse-capacity", sizes).table
    ratio = table["alpha_star measured"] / table["alpha_star"]
    # the bias is one parameter more than the limit counts
    assert ratio.to_numpy() == pytest.approx(np.ones(3), abs=0.12)
