"""Pages of two runs stand side by side, if they are of one kind."""

import pytest

import attnlimit as al
from attnlimit.reproduce import execute, load
from attnlimit.reproduce.result import write_comparison, write_report
from attnlimit.runs import RunFolder

CLT = {"horizons": [0.5], "n": [20, 50], "replicates": 20, "block": 10}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    experiment, root = load("clt"), tmp_path_factory.mktemp("runs")
    return [execute(experiment, experiment.config(False) | CLT | {"seed": s}, root) for s in (1, 2)]


def test_two_runs_stand_side_by_side(runs, tmp_path):
    text = write_comparison(*runs, tmp_path / "compare.html").read_text()
    assert "Difference" in text
    assert text.count('<script id="plotly">') == 1
    assert write_report(runs[0]).is_file()


def test_runs_of_different_kinds_are_not_compared(runs, tmp_path):
    other = RunFolder.prepare(tmp_path, "gaussian", {"seed": 0})
    with pytest.raises(al.BadInput, match="one kind"):
        write_comparison(runs[0], other, tmp_path / "c.html")
