import json
from contextlib import nullcontext

import pytest

import attnlimit
from attnlimit.cli import main
from attnlimit.reproduce import EXPERIMENTS


def run(capsys, *arguments):
    """Exit code, stdout and stderr of one command."""
    with pytest.raises(SystemExit) as exit_info:
        main([*arguments])
    captured = capsys.readouterr()
    return exit_info.value.code or 0, captured.out, captured.err


@pytest.fixture
def small(monkeypatch):
    """Sizes of the central limit experiment that finish in a second."""
    from attnlimit.reproduce import clt

    def config(paper):
        return {"horizons": [0.5], "n": [20, 50], "replicates": 20, "block": 10}

    monkeypatch.setattr(clt.EXPERIMENT, "config", config)


def test_help_and_version(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "reproduce" in out
    assert run(capsys, "--version")[1].strip() == f"attnlimit {attnlimit.__version__}"


def test_list_names_every_experiment(capsys):
    code, out, _ = run(capsys, "reproduce", "--list", "--json")
    assert code == 0
    assert [row["name"] for row in json.loads(out)] == list(EXPERIMENTS)
    assert "gaussian" in run(capsys, "reproduce", "--list")[1]


def test_list_of_one_experiment_names_its_settings(capsys):
    code, out, _ = run(capsys, "reproduce", "gaussian", "--list", "--json")
    assert code == 0
    results = {row["setting"]: row for row in json.loads(out)}
    assert results["replicates"] == {"setting": "replicates", "value": 100, "paper": 200}
    assert "replicates" in run(capsys, "reproduce", "gaussian", "--list")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "nothing"], "There is no experiment 'nothing'"),
        (["reproduce", "gausian"], "did you mean gaussian?"),
        (["reproduce", "clt", "--seed", "-1"], "--seed"),
        (["reproduce", "clt", "--workers", "0"], "--workers"),
        (["reproduce", "clt", "--out", "/proc/none"], "Cannot write"),
        (["runs", "page", "x", "--page", "page.pdf"], "ends in .html, got page.pdf"),
        (["runs", "show", "nothing"], "There is no run 'nothing'"),
        (["runs", "show", ""], "There is no run"),
    ],
)
def test_wrong_input_is_one_sentence_and_code_2(capsys, arguments, message):
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in out + err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "nothing"], "There is no experiment 'nothing'"),
        (["reproduce", "clt", "--seed", "x"], "--seed"),
        (["plan", "--text", "/nowhere/text"], "/nowhere/text"),
    ],
)
def test_errors_are_json_where_json_was_asked_for(capsys, arguments, message):
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 2
    result = json.loads(out)
    assert message in result["error"]
    assert result["exit_code"] == 2
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments", [["nothing"], ["reproduce", "clt", "--seed", "x"], ["reproduce", "--nothing"]]
)
def test_usage_errors_exit_with_code_2(capsys, arguments):
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert "Traceback" not in out + err


def test_an_unexpected_failure_is_a_sentence(capsys, monkeypatch):
    def fail(*given, **options):
        raise RuntimeError("boom")

    monkeypatch.setattr("attnlimit.reproduce.run", fail)
    monkeypatch.delenv("ATTNLIMIT_DEBUG", raising=False)
    code, out, err = run(capsys, "reproduce", "clt")
    assert code == 1
    assert "RuntimeError: boom" in err
    assert "Traceback" not in out + err


def test_ctrl_c_is_said_calmly(capsys, monkeypatch):
    def stop(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("attnlimit.reproduce.run", stop)
    code, _, err = run(capsys, "reproduce", "clt")
    assert code == 130
    assert "Traceback" not in err


@pytest.mark.slow
def test_reproduce_then_runs(capsys, monkeypatch, tmp_path, small):
    monkeypatch.setattr("attnlimit.runs.ProcessPool", lambda workers: nullcontext())
    out_option = ["--out", str(tmp_path)]
    code, out, err = run(capsys, "reproduce", "clt", *out_option, "--json")
    assert code == 0, err
    answer = json.loads(out)
    assert len(answer["table"]) == 2
    names = {path.name for path in tmp_path.glob("clt-*/*")}
    assert {"clt.png", "clt.pdf", "clt.html", "curves.parquet", "run.json"} <= names

    code, out, _ = run(capsys, "reproduce", "clt", *out_option)
    assert code == 0
    assert "distance to normal" in out

    listed = json.loads(run(capsys, "runs", "list", *out_option, "--json")[1])
    assert [row["state"] for row in listed] == ["finished"]
    assert "finished" in run(capsys, "runs", "list", *out_option)[1]
    monkeypatch.chdir(tmp_path)
    assert "There are no runs in runs" in run(capsys, "runs")[1]
    shown = json.loads(run(capsys, "runs", "show", "clt", *out_option, "--json")[1])
    assert shown["config"]["replicates"] == 20
    assert "replicates: 20" in run(capsys, "runs", "show", "clt", *out_option)[1]
