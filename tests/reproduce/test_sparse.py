import json

import numpy as np
import pandas as pd
import pytest

from attnlimit.report.figures import draw
from attnlimit.reproduce import EXPERIMENTS, load

SPARSE = [name for name in EXPERIMENTS if name.startswith("sparse-")]
TINY = {
    "sparse-curves": {"dim": 40, "replicates": 2, "alphas": [1.0], "lines": 3},
    "sparse-alignment": {"dim": 60, "replicates": 2, "alphas": [1.0]},
    "sparse-capacity": {
        "strengths": [0.0, 2.0],
        "ratios": [0.7, 1.3],
        "replicates": 2,
        "dims": {"attention": 15, "mean pooling": 15, "all tokens": 5},
    },
    "sparse-separation": {"log2_lengths": [4, 5], "draws": 500, "log2_checked": 4},
    "sparse-phase": {
        "strengths": [2.0, 5.0],
        "alphas": [1.0, 2.0, 3.0, 4.0],
        "checked": [[4.0, 2.0]],
        "dim": 40,
        "replicates": 2,
    },
    "sparse-length": {"sharpnesses": [0.0, 2.0], "lengths": [10, 20], "dim": 40, "replicates": 2},
    "sparse-check": {"dims": [20, 80], "replicates": [3, 3]},
    "sparse-digits": {"digits": [0], "budgets": [60], "replicates": 2, "test_bags": 100},
    "sparse-documents": {
        "articles": ["Autism"],
        "background": 20,
        "per_article": 30,
        "budgets": [200],
        "replicates": 2,
        "test_bags": 100,
    },
}


def test_every_sparse_experiment_is_tried_here():
    assert set(SPARSE) == set(TINY)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPARSE)
def test_experiment_runs_and_draws(name, tmp_path, request):
    if name == "sparse-documents":
        request.getfixturevalue("text_and_model")
    experiment = load(name)
    config = experiment.config(False) | TINY[name] | {"seed": 0}
    if name == "sparse-check":
        config["settings"] = config["settings"][:2]
    if name == "sparse-phase":
        config["strengths"] = config["strengths"][:1]
    shards = json.loads(json.dumps(experiment.shards(config)))
    children = np.random.SeedSequence(0).spawn(len(shards))
    frames = [
        experiment.compute(shard, seed).assign(shard=i)
        for i, (shard, seed) in enumerate(zip(shards, children, strict=True))
    ]
    curves = experiment.combine(config, pd.concat(frames, ignore_index=True))
    assert {"predicted", "measured", "stderr"} <= set(curves.columns)
    assert len(experiment.table(config, curves))
    assert all(isinstance(remark, str) for remark in experiment.remarks(config, curves))
    paths = draw(experiment.figure(config, curves), tmp_path, name)
    assert all(path.stat().st_size > 5000 for path in paths)
    assert json.dumps(experiment.config(True))
