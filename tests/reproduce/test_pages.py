"""Pages of runs, and tables of two runs side by side."""

import pytest

import attnlimit as al
from attnlimit.reproduce import execute, load
from attnlimit.reproduce.result import side_by_side, table_of, write_report
from attnlimit.runs import RunFolder

CLT = {"horizons": [0.5], "n": [20, 50], "replicates": 20, "block": 10}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    experiment, root = load("clt"), tmp_path_factory.mktemp("runs")
    return [execute(experiment, experiment.config(False) | CLT | {"seed": s}, root) for s in (1, 2)]


def test_two_runs_stand_side_by_side(runs):
    table = side_by_side(*runs)
    assert {"H", "n", "z, first", "z, second", "z, difference"} <= set(table)
    gap = table["sd of √n·error, difference"]
    values = [table_of(run)["sd of √n·error"].str.split(" ").str[0].astype(float) for run in runs]
    assert gap.tolist() == pytest.approx((values[1] - values[0]).tolist())
    assert write_report(runs[0]).read_text().count('<script id="plotly">') == 1


def test_tables_whose_rows_do_not_match_are_below_each_other(runs, tmp_path):
    experiment = load("clt")
    config = experiment.config(False) | CLT | {"seed": 1, "n": [20]}
    longer, shorter = runs[0], execute(experiment, config, tmp_path)
    table = side_by_side(longer, shorter)
    assert table["run"].tolist() == [*[longer.path.name] * 2, shorter.path.name]


def test_runs_of_different_kinds_are_not_compared(runs, tmp_path):
    other = RunFolder.prepare(tmp_path, "gaussian", {"seed": 0})
    with pytest.raises(al.BadInput, match="one kind"):
        side_by_side(runs[0], other)
