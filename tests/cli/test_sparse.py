import json

import numpy as np
import pandas as pd
import pytest

from attnlimit.cli.main import main
from attnlimit.sparse import SparseTask


def run(capsys, *arguments):
    """Run a command; return its exit code, what it printed and what it complained about."""
    with pytest.raises(SystemExit) as stop:
        main(["sparse", *arguments])
    captured = capsys.readouterr()
    return stop.value.code or 0, captured.out, captured.err


def run_json(capsys, *arguments):
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_alignment(capsys):
    table = run_json(capsys, "alignment", "--alpha0", "2")["table"]
    assert table[0]["cosine"] == pytest.approx(0.9475650690190889)
    setting = ["-L", "8", "-R", "2", "--strength", "3", "--loss", "square", "--lr-w", "5"]
    code, out, _ = run(capsys, "alignment", *setting, "--alpha0", "1", "--dim", "50")
    assert code == 0
    assert "away from the signal" in out


def test_curves_with_measurement_and_figure(capsys, tmp_path):
    found = run_json(capsys, "curves", "--alpha", "1,2", "--model", "pooled", "--dim", "30",
                     "--out", str(tmp_path))  # fmt: skip
    assert len(found["table"]) == 2
    assert found["table"][0]["test_error stderr"] > 0
    assert (tmp_path / "sparse-curves.png").exists()
    assert (tmp_path / "sparse-curves.csv").exists()


def test_capacity_oracle_separation_phase(capsys):
    table = run_json(capsys, "capacity", "--strength", "0", "--model", "pooled")["table"]
    assert table[0]["alpha_star"] == pytest.approx(2.0)
    table = run_json(capsys, "oracle", "--strength", "2")["table"]
    assert table[0]["bayes"] < table[0]["linear"]
    table = run_json(capsys, "separation", "--length", "16")["table"]
    assert table[0]["linear"] == pytest.approx(13.16, abs=0.01)
    table = run_json(capsys, "phase", "--strength", "5", "--alpha", "4")["table"]
    assert table[0]["best"] == "attention"


def test_plan(capsys, tmp_path):
    pytest.importorskip("sklearn")
    X, y = SparseTask(5, 1, 6.0).sample(24, 3, seed=0)
    rows = [
        pd.DataFrame(bag, columns=list("abc")).assign(bag=i, label=label)
        for i, (bag, label) in enumerate(zip(X, y, strict=True))
    ]
    pd.concat(rows).to_csv(tmp_path / "pilot.csv", index=False)
    found = run_json(capsys, "plan", str(tmp_path / "pilot.csv"), "--budget", "50",
                     "--out", str(tmp_path / "plan"))  # fmt: skip
    assert found["recommended"] in found["recommendation"]
    assert found["advice"][0]["bags"] == 50
    assert "bags" in found["next_step"] or "Nothing more" in found["next_step"]
    assert {"bag", "instance", "alone"} <= set(found["telling"][0])
    assert (tmp_path / "plan" / "sparse-plan-curves.png").exists()
    assert "Instances that tell" in (tmp_path / "plan" / "sparse-plan.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["curves", "-L", "3", "-R", "4"], "signals"),
        (["curves", "--prior", "1"], "prior"),
        (["curves", "--alpha", "0"], "alpha"),
        (["curves", "--alpha", "many"], "--alpha"),
        (["curves", "--cosine", "2"], "cosine"),
        (["curves", "--model", "bert"], "--model"),
        (["curves", "--loss", "huber"], "loss"),
        (["alignment", "--strength", "0"], "strength"),
        (["capacity", "--sharpness", "-1"], "sharpness"),
        (["separation", "--error", "0.7"], "error"),
        (["plan", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(capsys, arguments, word):
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert word in err
    assert "Traceback" not in err
    assert err.strip().count("\n") == 0


def test_a_pilot_of_one_class_is_refused(capsys, tmp_path):
    np.random.default_rng(0)
    pd.DataFrame({"bag": [1, 1, 2, 2], "label": 1, "x": [0.1, 0.2, 0.3, 0.4]}).to_csv(
        tmp_path / "p.csv", index=False
    )
    code, _, err = run(capsys, "plan", str(tmp_path / "p.csv"))
    assert code == 2
    assert "both classes" in err
