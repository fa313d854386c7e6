"""Does `attnlimit cost` answer, as a table and as JSON, and refuse in one sentence?"""

import json

import pytest

from called import call

LARGE = ["--layers", "80", "--heads", "64", "--kv-heads", "8", "--head-dim", "128",
         "--parameters", "70e9", "--context", "1000000", "--queries", "1000"]  # fmt: skip


@pytest.fixture(autouse=True)
def calibrated(tmp_path, monkeypatch, rates):
    """A machine whose rates are known."""
    monkeypatch.setenv("ATTNLIMIT_CACHE", str(tmp_path))
    return rates.write(tmp_path / "cost.json")


def answer(*arguments):
    code, out, err = call("cost", *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_a_model_of_any_size_is_answered():
    said = answer(*LARGE, "--workers", "64", "--hours", "8", "--memory", "256")
    assert [row["in"] for row in said["stages"]][-1] == "measure"
    assert said["fits"] == {"plan": False, "measure": False}
    assert {row["job"] for row in said["jobs"]} == {"plan", "measure"}
    assert all(row["hours on 64"] > 0 for row in said["jobs"])
    assert said["workers_for_hours"] == {"plan": None, "measure": None}


def test_a_table_says_what_does_not_fit_and_how_many_are_needed():
    code, out, _ = call("cost", *LARGE, "--memory", "256", "--hours", "8")
    assert code == 0
    assert "does not fit" in out
    assert "no number of workers" in out
    code, out, _ = call("cost", "--like", "minilm", "--hours", "8", "--memory", "4")
    assert code == 0
    assert "workers do it in 8 h" in out
    assert "does not fit" not in out


def test_a_named_model_is_the_same_as_its_sizes():
    named = answer("--like", "llama-70b", "--shared", "--shard-seconds", "60")
    assert named["jobs"][0]["seconds a shard"] == pytest.approx(60, rel=0.1)


def test_a_sweep_is_answered():
    said = answer("--sweep", "1000,30000", "--draws", "400", "--workers", "2")
    assert said["pairs"] == 400 * 30000 * 3750
    assert said["hours on 2"] == pytest.approx(said["core-seconds"] / 7200)


def test_a_cluster_is_simulated(tmp_path):
    (tmp_path / "run" / "shards").mkdir(parents=True)
    (tmp_path / "run" / "run.json").write_text("{}")
    (tmp_path / "run" / "shards" / "00000.json").write_text('{"seconds": 2.0}')
    said = answer("--simulate", tmp_path / "run", "--shards", "2000", "--deaths", "1")
    assert [row["workers"] for row in said["table"]][-1] == 1024
    assert said["driver"] == 0.01


@pytest.mark.parametrize(
    "arguments",
    [
        ["--like", "gpt-17"],
        ["--like", "minilm", "--layers", "3"],
        ["--layers", "3"],
        [
            "--layers",
            "2",
            "--heads",
            "5",
            "--kv-heads",
            "2",
            "--head-dim",
            "8",
            "--parameters",
            "1",
        ],
        ["--context", "3"],
        ["--workers", "0"],
        ["--hours", "-1"],
        ["--memory", "0"],
        ["--parameters", "nan", "--layers", "2", "--heads", "4", "--head-dim", "8"],
        ["--sweep", "many"],
        ["--sweep", "1"],
        ["--sweep", "100", "--draws", "0"],
        ["--simulate", "nowhere"],
        ["--check", "--limits"],
        ["--shared", "--shard-seconds", "0"],
    ],
)
def test_nonsense_is_refused_in_one_sentence(arguments):
    code, out, err = call("cost", *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("Error: ")
    assert err.strip().endswith(".")
    assert len(err.strip().splitlines()) == 1


def test_a_damaged_file_of_rates_is_named(calibrated):
    calibrated.write_text("{}")
    code, _, err = call("cost")
    assert code == 2
    assert "--calibrate" in err
