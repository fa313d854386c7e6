"""Pages are whole, need nothing from outside, and never turn a text into markup."""

import json
import re

import pytest

import attnlimit as al
from attnlimit.budgets import read_plan
from attnlimit.cli.measure import write_results
from attnlimit.reproduce.model import survey_of
from attnlimit.reproduce.pages import write_comparison, write_report
from attnlimit.runs import RunFolder
from made_run import HOSTILE, made_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as monkeypatch:
        return made_run(tmp_path_factory.mktemp("runs"), monkeypatch)


def without_plotly(text):
    return re.sub(r'<script id="plotly">.*?</script>', "", text, flags=re.DOTALL)


def data_of(text):
    found = re.search(r'id="data">(.*?)</script>', text, flags=re.DOTALL)
    return json.loads(found.group(1))


def test_a_page_embeds_plotly_once_and_asks_the_network_for_nothing(run):
    text = write_report(run).read_text()
    assert text.count('<script id="plotly">') == 1
    assert text.count("plotly.js v") <= 1
    assert "default-src 'none'" in text.replace("&#x27;", "'")
    rest = without_plotly(text)
    assert not re.search(r'(src|href)="(https?:)?//', rest)


def test_tokens_and_names_stay_text(run):
    text = write_report(run).read_text()
    rest = without_plotly(text)
    assert HOSTILE not in rest
    assert "made<b>" not in rest
    assert data_of(text)["single"]["tokens"][0] == HOSTILE


def test_the_page_has_every_head_with_all_its_curves(run):
    data = data_of(write_report(run).read_text())["single"]
    assert len(data["cells"]) == 6
    for cell in data["cells"]:
        assert len(cell["influence"]) == len(data["tokens"]) == 24
        assert set(cell["schemes"]) == {"sample", "top-k", "local", "top-k + sample"}
        for name in ("exact", "delta", "measured"):
            assert len(cell["curve"][name]["n"]) == len(cell["curve"][name]["v"]) > 3


def test_results_include_a_budget_file_that_can_be_read(run, tmp_path):
    page = tmp_path / "report" / "index.html"
    written = write_results(run, survey_of(run), page)
    assert written["report"] == page
    assert (run.path / "report.html").is_file()
    assert len(read_plan(written["budget"]).heads) == 6


def test_two_runs_stand_side_by_side(run, tmp_path, monkeypatch):
    other = made_run(tmp_path, monkeypatch, text="wikipedia:Other<i>")
    text = write_comparison(run, other, tmp_path / "compare.html").read_text()
    assert "Heads that differ most" in text
    assert "Other<i>" not in without_plotly(text)
    larger = made_run(tmp_path, monkeypatch, text="wikipedia:Larger", layers=3)
    assert "Summary" in write_comparison(run, larger, tmp_path / "c.html").read_text()


def test_runs_of_different_kinds_are_not_compared(run, tmp_path):
    other = RunFolder.prepare(tmp_path, "gaussian", {"seed": 0})
    with pytest.raises(al.BadInput, match="one kind"):
        write_comparison(run, other, tmp_path / "c.html")
