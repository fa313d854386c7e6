"""runs page and runs compare: a page of every run, or a sentence on why there is none."""

import json
import shutil
from pathlib import Path

import pytest

from attnlimit.runs.folder import run_key
from called import call
from every_sampler import made_capture

KINDS = ["clt", "sparse-separation"]


@pytest.fixture
def runs(reproduced):
    """Two run folders of each kind."""
    return reproduced


@pytest.fixture
def copy(runs, tmp_path):
    """Return a copy of a run folder that may be spoilt."""

    def make(kind):
        return Path(shutil.copytree(runs[kind][0], tmp_path / Path(runs[kind][0]).name))

    return make


def rewrite(path, change):
    """Change a run's record, as whatever made the run would have written it."""
    record = json.loads((path / "run.json").read_text())
    change(record)
    weights, version = record["weights"], record["version"]
    record["key"] = run_key(record["experiment"], record["config"], weights, version)
    (path / "run.json").write_text(json.dumps(record))


def one_sentence(*arguments):
    code, out, err = call(*arguments)
    assert code == 2, err
    assert "Traceback" not in out + err
    assert len(err.strip().splitlines()) == 1
    return err


@pytest.mark.parametrize("kind", KINDS)
def test_any_run_has_a_page(runs, kind, tmp_path):
    page = tmp_path / "page.html"
    code, out, err = call("runs", "page", runs[kind][0], "--page", page, "--json")
    assert code == 0, err
    assert json.loads(out) == {"page": str(page)}
    assert page.read_text().startswith("<!doctype html>")


def test_a_run_is_found_by_the_beginning_of_its_name(runs, tmp_path):
    path = Path(runs["clt"][0])
    code, out, err = call("runs", "page", path.name[:-2], "--out", path.parent)
    assert code == 0, err
    assert "report.html" in out


@pytest.mark.parametrize("kind", KINDS)
def test_two_runs_of_a_kind_are_compared(runs, kind):
    code, out, err = call("runs", "compare", *runs[kind], "--json")
    assert code == 0, err
    columns = json.loads(out)["table"][0]
    assert any(name.endswith("difference") for name in columns)
    code, out, err = call("runs", "compare", *runs[kind])
    assert code == 0, err
    assert "beside" in out


def test_runs_of_two_kinds_are_not_compared(runs):
    err = one_sentence("runs", "compare", runs["sparse-separation"][0], runs["clt"][0])
    assert "one kind" in err


def test_what_is_no_run_is_refused(tmp_path):
    assert "There is no run" in one_sentence("runs", "page", tmp_path, "--out", tmp_path)
    assert "There is no run" in one_sentence("runs", "page", "nothing", "--out", tmp_path)
    assert "There is no run" in one_sentence("runs", "page", "")


def test_an_unfinished_run_is_refused(copy):
    path = copy("clt")
    (path / "curves.parquet").unlink()
    assert "is not finished" in one_sentence("runs", "page", path)


def test_damaged_results_are_refused(copy):
    path = copy("clt")
    curves = path / "curves.parquet"
    content = bytearray(curves.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)  # the footer stays whole
    curves.write_bytes(content)
    assert "damaged" in one_sentence("runs", "page", path)
    curves.write_bytes(b"PAR1")
    assert "damaged" in one_sentence("runs", "page", path)
    (path / "run.json").write_text("{")
    assert "damaged" in one_sentence("runs", "page", path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_an_older_version_says_what_it_lacks(copy, runs, kind):
    path = copy(kind)
    lost = {"clt": "replicates", "sparse-separation": "error"}[kind]
    rewrite(path, lambda record: (record["config"].pop(lost), record.update(version="0.0.7")))
    for arguments in (["runs", "page", path], ["runs", "compare", path, runs[kind][1]]):
        err = one_sentence(*arguments)
        assert "made by attnlimit 0.0.7" in err
        assert repr(lost) in err
        assert "again" in err


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_stored_in_another_way_is_refused_in_one_sentence(copy, kind):
    path = copy(kind)
    rewrite(path, lambda record: record.pop("schema"))
    for arguments in (["runs", "page", path], ["runs", "show", path.name, "--out", path.parent]):
        assert "run its command again" in one_sentence(*arguments)
    code, out, _ = call("runs", "list", "--out", path.parent, "--json")
    assert code == 0
    assert [row["state"] for row in json.loads(out)] == ["of another version"]


def test_a_run_of_an_unknown_kind_is_refused(copy):
    path = copy("clt")
    rewrite(path, lambda record: record.update(experiment="nothing"))
    assert "does not know" in one_sentence("runs", "page", path)


def test_a_capture_is_not_a_run(tmp_path):
    made_capture(tokens=16).save(tmp_path)
    code, _, err = call("runs", "page", tmp_path)
    assert code == 2
    assert f"attnlimit plan --capture {tmp_path}" in err
