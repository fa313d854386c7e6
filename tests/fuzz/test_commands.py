"""Commands over run folders print what they can, or one sentence, whatever the folders hold."""

from __future__ import annotations

import contextlib
import io
import json
import shutil

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlimit.cli.main import main
from attnlimit.experiments import load
from attnlimit.runs import execute, run_key
from attnlimit.runs.task import to_parquet
from fuzz.hostile import as_json, damaged, one_sentence, rewritten, share, spoiled
from made_run import made_run

CLT = {"seed": 3, "horizons": [0.5], "n": [20, 60], "replicates": 20, "block": 10}


def run(*arguments):
    """Run a command; return its exit code, what it printed, and what it complained of."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
            code = 0
        except SystemExit as done:
            code = int(done.code or 0)
    out.getvalue().encode()
    return code, out.getvalue(), err.getvalue()


def check(*arguments):
    """Run a command that may refuse, in one sentence, but must not break."""
    with one_sentence():
        code, _, err = run(*arguments)
        assert code in (0, 2), err
        assert (code == 0) or (err.startswith("Error: ") and err.count("\n") == 1), err
        assert "bug in attnlimit" not in err


@pytest.fixture(scope="module", autouse=True)
def _debug():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNLIMIT_DEBUG", "1")  # a bug is raised with its traceback
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A place with a run of each kind: a figure, and a model."""
    root = tmp_path_factory.mktemp("runs")
    figure = execute(load("clt"), CLT, root)
    with pytest.MonkeyPatch.context() as patch:
        model = made_run(root, patch, layers=1, heads=2)
    return {"figure": figure, "model": model}


@pytest.fixture(scope="module", params=["figure", "model"])
def whole(request, runs, tmp_path_factory):
    """One of them on its own, with its record and its curves as they were."""
    source = runs[request.param]
    root = tmp_path_factory.mktemp(request.param)
    folder = type(source)(root / source.path.name)
    shutil.copytree(source.path, folder.path)
    return folder, source.record(), pd.read_parquet(source.path / "curves.parquet")


def write(whole, record=None, curves=None):
    folder, good_record, good_curves = whole
    record = as_json(good_record) if record is None else record
    (folder.path / "run.json").write_bytes(record)
    (folder.path / "curves.parquet").write_bytes(
        to_parquet(good_curves) if curves is None else curves
    )


def check_all(whole, page=True):
    folder = whole[0]
    root, name = folder.path.parent, folder.path.name
    check("runs", "list", "--out", root)
    check("runs", "show", name, "--out", root)
    check("runs", "show", name, "--out", root, "--json")
    if page:
        check("report", name, "--out", root)


def test_the_runs_themselves_are_fine(whole):
    write(whole)
    check_all(whole)
    assert (whole[0].path / "report.html").is_file()


@share(1)
@given(st.data())
def test_damaged_records(whole, data):
    write(whole, record=data.draw(damaged(as_json(whole[1]))))
    check_all(whole, page=False)


@share(1)
@given(st.data())
def test_records_of_nonsense(whole, data):
    content = data.draw(rewritten(whole[1]))
    with contextlib.suppress(Exception):
        content["key"] = run_key(content["experiment"], content["config"], content.get("weights"))
    write(whole, record=as_json(content))
    check_all(whole)


@share(1)
@given(st.data())
def test_curves_of_nonsense(whole, data):
    write(whole, curves=to_parquet(data.draw(spoiled(whole[2]))))
    check_all(whole)


def test_one_damaged_run_does_not_hide_the_others(runs, tmp_path):
    for run_folder in runs.values():
        shutil.copytree(run_folder.path, tmp_path / run_folder.path.name)
    bad = tmp_path / "clt-000000000000"
    bad.mkdir()
    for content in (b"{", b"[" * 100_000, b'{"key": 1, "experiment": 2, "config": 3}', b"\xff"):
        (bad / "run.json").write_bytes(content)
        code, out, _ = run("runs", "list", "--out", tmp_path)
        assert code == 0
        assert all(run_folder.path.name in out for run_folder in runs.values())
        assert "clt-000000000000" in out
        assert "damaged" in out
        rows = json.loads(run("runs", "list", "--out", tmp_path, "--json")[1])
        assert [row["state"] for row in rows].count("damaged") == 1


def test_what_a_run_says_is_no_command_to_the_terminal(runs, tmp_path):
    source = runs["figure"]
    shutil.copytree(source.path, tmp_path / source.path.name)
    record = source.record()
    record["version"] = "\x1b[2J\x1b]0;owned\x07[red]"
    record["created"] = "[/b][link=x]\u202e"
    with one_sentence():
        record["key"] = run_key(record["experiment"], record["config"], None)
    (tmp_path / source.path.name / "run.json").write_text(json.dumps(record))
    for command in (("list",), ("show", source.path.name)):
        code, out, _ = run("runs", *command, "--out", tmp_path)
        assert code in (0, 2)
        assert "\x1b" not in out
        assert "\x07" not in out
