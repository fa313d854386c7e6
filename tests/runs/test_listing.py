import json

import pytest

import faulty
from attnlimit.cli import main
from attnlimit.reproduce import execute
from attnlimit.runs import RunFolder, ShardsFailed


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([*map(str, arguments)])
    printed = capsys.readouterr()
    return stopped.value.code, printed.out, printed.err


@pytest.fixture
def runs(tmp_path):
    """A finished run, one with a failed shard, and one whose record is damaged."""
    execute(faulty.EXPERIMENT, {"seed": 0, "shards": 2}, tmp_path)
    with pytest.raises(ShardsFailed):
        execute(faulty.EXPERIMENT, {"seed": 1, "shards": 2, "shard": {"raises": [1]}}, tmp_path)
    damaged = RunFolder.prepare(tmp_path, "faulty", {"seed": 2, "shards": 2})
    (damaged.path / "run.json").write_text("{")
    return tmp_path


def test_one_damaged_run_does_not_hide_the_others(runs, capsys):
    code, out, _ = run(capsys, "runs", "list", "--out", runs, "--json")
    assert code == 0
    states = sorted(row["state"] for row in json.loads(out))
    assert states == ["damaged", "finished", "shards failed"]


def test_a_failed_shard_is_shown(runs, capsys):
    listed = json.loads(run(capsys, "runs", "list", "--out", runs, "--json")[1])
    name = next(row["run"] for row in listed if row["state"] == "shards failed")
    code, out, _ = run(capsys, "runs", "show", name, "--out", runs)
    assert code == 0
    assert "shard 1 failed: ZeroDivisionError: nothing to divide by" in out
    shown = json.loads(run(capsys, "runs", "show", name, "--out", runs, "--json")[1])
    assert shown["failures"][0]["shard"] == 1


def test_a_damaged_run_is_one_sentence(runs, capsys):
    listed = json.loads(run(capsys, "runs", "list", "--out", runs, "--json")[1])
    name = next(row["run"] for row in listed if row["state"] == "damaged")
    code, _, err = run(capsys, "runs", "show", name, "--out", runs)
    assert code == 2
    assert "damaged" in err
    assert "Traceback" not in err
