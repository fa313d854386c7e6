"""A user's own experiment is one file, and runs as ours do."""

import json
from contextlib import nullcontext

import pandas as pd
import pytest

from attnlimit.errors import BadInput
from attnlimit.reproduce import Result, load, run
from attnlimit.reproduce.documents import weights, with_model
from attnlimit.reproduce.result import write_report
from attnlimit.runs import ProcessPool, RunFolder
from called import call

MINE = '''
"""Error of the mean of n uniform numbers."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from attnlimit.picture import FigureSpec, Panel
from attnlimit.reproduce.experiment import DrawnExperiment
from attnlimit.reproduce.panels import DRAWN, TOKENS, pair


@dataclass
class Deviation:
    n: int

    def __call__(self):
        return (12 * self.n) ** -0.5


class Mine(DrawnExperiment):
    name = "mine"
    title = "The mean of uniform numbers"

    def config(self, paper):
        return {"n": [10, 100], "replicates": 400 if paper else 200, "block": 60}

    def shards(self, config):
        return [{"n": n, **block} for n in config["n"] for block in self.blocks(config)]

    def compute(self, shard, seed):
        children = seed.spawn(shard["draws"])
        means = [np.random.default_rng(child).random(shard["n"]).mean() for child in children]
        return pd.DataFrame({"n": shard["n"], "square": (np.array(means) - 0.5) ** 2})

    def combine(self, config, rows):
        squares = rows.groupby("n")["square"]
        root = squares.mean() ** 0.5
        moments = pd.DataFrame({"measured": root, "stderr": squares.sem() / (2 * root)})
        return moments.reset_index().assign(predicted=[Deviation(n)() for n in moments.index])

    def figure(self, config, curves):
        panel = Panel("error", TOKENS, "error", tuple(pair(curves, "n", "mean")))
        return FigureSpec(self.title, (panel,), 1, DRAWN)


EXPERIMENT = Mine()
'''


@pytest.fixture
def mine(tmp_path):
    file = tmp_path / "my experiment.py"
    file.write_text(MINE)
    return file


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr("attnlimit.runs.ProcessPool", lambda workers: nullcontext())


def test_the_command_runs_it_and_shows_it_again(mine, here, tmp_path):
    command = ["reproduce", mine, "--out", tmp_path / "runs", "--set", "n=[10,50]", "--json"]
    code, out, err = call(*command)
    assert code == 0, err
    first = json.loads(out)
    assert [row["n"] for row in first["table"]] == [10, 50]
    assert all(abs(row["z"]) < 4 for row in first["table"])
    assert "2 points" in first["remarks"][0]
    folder = tmp_path / "runs" / next((tmp_path / "runs").iterdir()).name
    assert {"mine.png", "mine.html", "report.html"} <= {path.name for path in folder.iterdir()}
    page = (folder / "report.html").read_text()
    assert "my experiment.py" in page
    assert "--set" in page
    assert json.loads(call(*command)[1])["run"] == first["run"]
    mine.write_text(MINE.replace("0.5) ** 2", "0.5) ** 2 * 4"))
    again = json.loads(call(*command)[1])
    assert again["run"] != first["run"]
    assert again["table"][0]["measured"] == pytest.approx(2 * first["table"][0]["measured"])
    with pytest.raises(BadInput, match=r"'mine', which this version does not know; if it is your"):
        write_report(RunFolder(folder))


@pytest.mark.slow
def test_other_processes_find_it(mine, tmp_path):
    with ProcessPool(2) as executor:
        apart = run(str(mine), out=tmp_path, executor=executor, seed=5)
    pd.testing.assert_frame_equal(apart.curves, run(str(mine), seed=5).curves)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "There is no file"),
        ("EXPERIMENT = 1 /", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("", "has no attribute 'EXPERIMENT'"),
        ("EXPERIMENT = 3", "must end with EXPERIMENT"),
        (MINE.replace('"mine"', '"clt"'), "whose name is not one of ours"),
    ],
)
def test_a_file_that_is_no_experiment_is_refused(tmp_path, text, message):
    file = tmp_path / "other.py"
    if text is not None:
        file.write_text(text)
    code, _, err = call("reproduce", file, "--out", tmp_path)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("replicates", "--set takes KEY=VALUE"),
        ("=3", "--set takes KEY=VALUE"),
        ("draws=3", "clt has no setting 'draws'; it has block, horizons, n, replicates."),
        ("block=many", "block must be like 500, got 'many'"),
        ("block=2.5", "block must be like 500, got 2.5"),
        ("n=10", "n must be like"),
        ("n=[]", "n must be like"),
        ("n=[10,null]", "n must be like"),
        ("n=[0,10]", "n must be at least 1, got 0"),
        ("replicates=1", "replicates must be at least 2, got 1"),
        ("block=0", "block must be at least 1, got 0"),
    ],
)
def test_a_wrong_setting_is_a_sentence(tmp_path, setting, message):
    code, _, err = call("reproduce", "clt", "--set", setting, "--out", tmp_path)
    assert code == 2
    assert message in err


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"n": [100, 200]}, "n must have at least 4 values, since a rate is fitted to them; got 2"),
        ({"n": [1, 2, 3, 4]}, "n must be at least 2 tokens"),
        ({"replicates": 3}, "replicates must be at least 4"),
        ({"dim": 0}, "dim must be at least 1"),
        ({"scales": [-1.0]}, "scales must be positive"),
    ],
)
def test_what_has_no_rate_is_refused_before_it_is_run(setting, message):
    with pytest.raises(BadInput, match=message):
        load("gaussian").configured(setting)


def test_another_model_is_recorded_with_its_own_weights():
    config = load("bert").configured({"model": "smollm2"})
    result = with_model(config)
    assert result["weights"] == weights("smollm2")["weights"] != config["weights"]
    assert result["text"] == config["text"]


def test_settings_are_of_the_kind_they_replace():
    experiment = load("uniform")
    assert experiment.configured({"delta": 1, "cases": [["sphere", 3, [1]]]})["delta"] == 1
    with pytest.raises(BadInput, match="cases must be like"):
        experiment.configured({"cases": [3]})


def test_without_a_folder_the_numbers_are_the_same(tmp_path):
    small = {"horizons": [0.5], "n": [20, 50], "replicates": 25, "block": 10}
    kept, passed = (run("clt", small, out=out) for out in (tmp_path, None))
    assert passed.folder is None
    pd.testing.assert_frame_equal(kept.curves, passed.curves)
    assert passed.command == (
        "attnlimit reproduce clt --set 'horizons=[0.5]' --set 'n=[20, 50]' --set replicates=25 "
        "--set block=10 --seed 0"
    )


def test_the_command_names_a_model_and_a_capture_and_not_what_follows_from_them():
    bert = load("bert")
    model = with_model(bert.configured({"model": "smollm2", "layers": [0, 3]}))
    assert Result(bert, model, pd.DataFrame()).command == (
        "attnlimit reproduce bert --set 'model=\"smollm2\"' --set 'layers=[0, 3]' --seed 0"
    )
    stored = {"folder": "/a b/folder", "sha256": "0"}
    captured = model | {"capture": stored, "model": "own tensors", "text": "mine", "tokens": 40}
    assert Result(bert, captured, pd.DataFrame()).command == (
        "attnlimit reproduce bert --set 'layers=[0, 3]' --capture '/a b/folder' --seed 0"
    )


def test_experiments_on_another_model_than_the_papers_say_how_to_run_it():
    for name, model in (("bert", "bert-base-uncased"), ("window", "bigbird-roberta-base")):
        experiment = load(name)
        rows = {"scheme": ["window", "weighted", "iid"], "layer": 0, "head": 0, "n": 128}
        curves = pd.DataFrame(rows | {"measured": 1.0, "predicted": 1.0, "stderr": 0.1})
        lines = super(type(experiment), experiment).remarks(experiment.config(False), curves)
        assert any("--set model=" in line and model in line for line in lines)
