"""Commands of `attnlimit bags`."""

import json
import shlex

import numpy as np
import pandas as pd
import pytest

from attnlimit.cli.main import main
from attnlimit.sparse import SparseTask

pytest.importorskip("sklearn")


def run(capsys, *arguments):
    """Run a command; return its exit code, output and errors."""
    with pytest.raises(SystemExit) as stop:
        main(["bags", *map(str, arguments)])
    captured = capsys.readouterr()
    return stop.value.code or 0, captured.out, captured.err


def run_json(capsys, *arguments):
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.fixture(scope="module")
def pilot(tmp_path_factory):
    X, y = SparseTask(5, 1, 6.0).sample(24, 3, seed=0)
    rows = [
        pd.DataFrame(bag, columns=list("abc")).assign(slide=i, kind="tumor" if y > 0 else "normal")
        for i, (bag, y) in enumerate(zip(X, y, strict=True))
    ]
    file = tmp_path_factory.mktemp("bags") / "my pilot.csv"
    pd.concat(rows).to_csv(file, index=False)
    return file


def test_plan_leads_with_the_number_of_bags(capsys, pilot, tmp_path):
    given = ["plan", pilot, "--label", "kind", "--budget", "50,100", "--out", tmp_path / "a"]
    result = run_json(capsys, *given)
    assert result["enough"] is None or 4 <= result["enough"] <= 100
    assert result["answer"].startswith((f"{result['enough']} labelled bags", "Cannot tell", "No "))
    assert result["advice"][0]["bags"] == 50
    assert {"bag", "instance", "alone"} <= set(result["deciding"][0])
    assert {row["label"] for row in result["deciding"]} == {"tumor", "normal"}
    assert (tmp_path / "a" / "plan.png").exists()


def test_the_page_has_a_command_and_python_that_run(capsys, pilot, tmp_path):
    import html
    import re

    given = ["plan", pilot, "--label", "kind", "--error", "0.3", "--budget", "40"]
    code, _, err = run(capsys, *given, "--out", tmp_path)
    assert code == 0, err
    text = (tmp_path / "plan.html").read_text()
    blocks = [html.unescape(block) for block in re.findall(r"<pre>(.*?)</pre>", text, re.S)]
    python, command = blocks
    for option in ("--label kind", "--error 0.3", "--budget 40", f"--out {tmp_path}"):
        assert option in command
    space = {}
    exec(python, space)  # what a reader would paste
    assert set(space["model"].predict(space["bags"].instances)) <= {"tumor", "normal"}
    words = shlex.split(command)
    assert words[:2] == ["attnlimit", "bags"]
    code, _, err = run(capsys, *words[2:])
    assert code == 0, err


def test_instances_takes_the_names_of_the_plan_and_repeats_its_options(capsys, pilot, tmp_path):
    given = ["--label", "kind", "--pooling", "attention", "--n", "3", "--sampler", "iid"]
    more = ["--most", "8", "--draws", "10", "--out", tmp_path]
    result = run_json(capsys, "instances", pilot, *given, *more)
    assert {row["sampler"] for row in result["table"]} == {"i.i.d."}
    text = (tmp_path / "instances.html").read_text()
    for option in ("--label kind", "--most 8", "--sampler iid", "--pooling attention"):
        assert option in text


def test_one_npz_with_X_and_y(capsys, tmp_path):
    X, y = SparseTask(5, 1, 6.0).sample(24, 3, seed=0)
    np.savez(tmp_path / "pilot.npz", X=X, y=np.where(y > 0, "tumor", "normal"))
    result = run_json(capsys, "plan", tmp_path / "pilot.npz", "--out", tmp_path)
    assert result["recommended"] in result["answer"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["plan", "nowhere.csv"], "nowhere.csv"),
        (["instances", "nowhere.csv", "--pooling", "max"], "--pooling must be one of"),
        (["instances", "nowhere.csv", "--n", "1"], "--n must be at least 2"),
        (["instances", "nowhere.csv", "--sampler", "best"], "best"),
        (["instances", "nowhere.csv", "--attention", "none.pt"], "There is no file none.pt"),
        (["instances", "nowhere.csv", "--n", "x"], "--n must be numbers"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(capsys, arguments, word):
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert word in err
    assert err.strip().count("\n") == 0


def test_a_pilot_of_one_class_is_refused(capsys, tmp_path):
    pd.DataFrame({"bag": [1, 1, 2, 2], "label": 1, "x": [0.1, 0.2, 0.3, 0.4]}).to_csv(
        tmp_path / "p.csv", index=False
    )
    code, _, err = run(capsys, "plan", tmp_path / "p.csv")
    assert code == 2
    assert "both classes" in err


def test_a_gated_attention_is_read(capsys, pilot, tmp_path):
    import torch

    layers = {"fc1": torch.nn.Linear(3, 2), "fc2": torch.nn.Linear(2, 1, bias=False)}
    torch.save(torch.nn.ModuleDict(layers).state_dict(), tmp_path / "net.pt")
    given = ["--attention", tmp_path / "net.pt", "--n", "2", "--sampler", "iid", "--draws", "5"]
    place = ["--label", "kind", "--out", tmp_path]
    code, out, err = run(capsys, "instances", pilot, *given, *place)
    assert code == 0, err
    assert "feature error" in out
    (tmp_path / "bad.pt").write_bytes(b"no")
    code, _, err = run(capsys, "instances", pilot, "--attention", tmp_path / "bad.pt", *place)
    assert code == 2
    assert err.strip().count("\n") == 0
