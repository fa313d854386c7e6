"""Commands over run folders print what they can, or one sentence, whatever the folders hold."""

from __future__ import annotations

import contextlib
import io
import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlimit.cli.main import main
from attnlimit.cli.runs import list_runs, page, show
from attnlimit.files import to_parquet
from attnlimit.reproduce import execute, load
from attnlimit.runs.folder import run_key
from fuzz.hostile import as_json, damaged, one_sentence, rewritten, share, spoiled

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


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs in one place."""
    root = tmp_path_factory.mktemp("runs")
    return [execute(load("clt"), CLT | {"seed": seed}, root) for seed in (3, 4)]


@pytest.fixture(scope="module")
def whole(runs, tmp_path_factory):
    """A copy of one of them, with its record and its table as they were."""
    source = runs[0]
    folder = type(source)(tmp_path_factory.mktemp("one") / source.path.name)
    shutil.copytree(source.path, folder.path)
    return folder, source.record(), source.table()


def write(whole, record=None, table=None):
    folder, good_record, good_table = whole
    record = as_json(good_record) if record is None else record
    (folder.path / "run.json").write_bytes(record)
    table = good_table if table is None else table
    (folder.path / "curves.parquet").write_bytes(to_parquet(table))


COMMANDS = {
    "list": lambda folder: list_runs(folder.path.parent),
    "show": lambda folder: show(folder.path.name, folder.path.parent),
    "json": lambda folder: show(folder.path.name, folder.path.parent, json=True),
    "page": lambda folder: page(folder.path.name, folder.path.parent),
}
commands = st.sampled_from(sorted(COMMANDS))


def check(whole, command):
    """Do what a command does, which may refuse in one sentence, but must not break."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), one_sentence():
        COMMANDS[command](whole[0])
    out.getvalue().encode()
    assert "\x1b" not in out.getvalue()


def test_the_runs_themselves_are_fine(whole):
    write(whole)
    for command in COMMANDS:
        check(whole, command)
    assert (whole[0].path / "report.html").is_file()


@share(0.2)
@given(st.data(), commands)
def test_damaged_records(whole, data, command):
    write(whole, record=data.draw(damaged(as_json(whole[1]))))
    check(whole, command)


@share(0.2)
@given(st.data(), commands)
def test_records_of_nonsense(whole, data, command):
    content = data.draw(rewritten(whole[1]))
    with contextlib.suppress(Exception):  # someone who knows how the key is made
        content["key"] = run_key(content["experiment"], content["config"], content.get("weights"))
    write(whole, record=as_json(content))
    check(whole, command)


@share(0.2)
@given(st.data(), commands)
def test_tables_of_nonsense(whole, data, command):
    write(whole, table=data.draw(spoiled(whole[2])))
    check(whole, command)


def test_one_damaged_run_does_not_hide_the_others(runs, tmp_path):
    for run_folder in runs:
        shutil.copytree(run_folder.path, tmp_path / run_folder.path.name)
    bad = tmp_path / "clt-000000000000"
    bad.mkdir()
    for content in (b"{", b"[" * 100_000, b'{"key": 1, "experiment": 2, "config": 3}', b"\xff"):
        (bad / "run.json").write_bytes(content)
        code, out, _ = run("runs", "list", "--out", tmp_path)
        assert code == 0
        assert all(run_folder.path.name in out for run_folder in runs)
        assert "clt-000000000000" in out
        assert "damaged" in out
        rows = json.loads(run("runs", "list", "--out", tmp_path, "--json")[1])
        assert [row["state"] for row in rows].count("damaged") == 1


def test_what_a_run_says_is_no_command_to_the_terminal(runs, tmp_path):
    source = runs[0]
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
