"""Numbers on pages come from runs: every marked block has a function, and is what it makes."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from attnlimit.reproduce import run
from studied import study

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "docs"), str(ROOT)]
from evidence.blocks import BLOCK, EVERY, MAKERS, Maker, rewritten  # noqa: E402
from evidence.cells import measured, number  # noqa: E402
from evidence.pictures import PICTURES, renewed, small  # noqa: E402
from evidence.runs import found_runs, typed  # noqa: E402
from evidence.studies import COMMANDS, Study  # noqa: E402
from make_evidence import commands, pages  # noqa: E402

from benchmarks.__main__ import SUITES, write  # noqa: E402
from benchmarks.row import Row  # noqa: E402

BLOCKS = [(page, block) for page in pages() for block in BLOCK.finditer(page.read_text())]
SETTINGS = {"horizons": [0.5], "n": [20, 50], "replicates": 40, "block": 20}
ASKED = "clt --set 'horizons=[0.5]' --set 'n=[20, 50]' --set replicates=40 --set block=20"


def test_blocks_and_functions_belong_together():
    assert sorted(block["name"] for _, block in BLOCKS) == sorted(MAKERS)
    assert all(MAKERS[block["name"]].kind == block["kind"] for _, block in BLOCKS)
    marks = sum(page.read_text().count("<!-- end -->") for page in pages())
    assert marks == len(BLOCKS)


def test_pictures_of_runs_are_shown_beside_a_table_of_the_same_run():
    for name, asked in PICTURES.items():
        (page,) = [one for one in pages() if f"images/{name})" in one.read_text()]
        assert f"`{typed(asked)}`" in page.read_text()
        assert typed(asked) in commands({})


def test_a_picture_changes_with_its_run_alone(tmp_path):
    Figure().savefig(tmp_path / "figure.png")
    assert small(tmp_path / "figure.png") == small(tmp_path / "figure.png")
    assert renewed(tmp_path, {}) == []


def test_without_folders_the_script_says_how_it_is_used():
    script = ROOT / "docs" / "make_evidence.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 2
    assert "usage" in done.stderr


def test_every_suite_of_the_benchmarks_has_its_table():
    assert [suite for suite in SUITES if f"{suite}-ratios" not in MAKERS] == []


def test_words_in_a_line_do_not_begin_it():  # there a comment would be a block of HTML
    begun = [
        page.name
        for page in pages()
        if re.search(r"^<!-- value|^<!-- end -->.", page.read_text(), re.M)
    ]
    assert not begun


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_no_table_of_numbers_is_typed_by_hand(page):
    """Beside marked blocks a table may have one decimal number: a setting, not what was found."""
    text = re.sub(r"```.*?```", "", BLOCK.sub("", page.read_text()), flags=re.S)
    tables = re.findall(r"(?:^\|.*\n)+", text, re.M)
    decimal = r"(?<![\w.])\d+\.\d+(?![\w.])"
    tables = [re.sub(r"`.*?`", "", one) for one in tables]
    assert [one for one in tables if len(re.findall(decimal, one)) > 1] == []


@pytest.mark.parametrize("place", BLOCKS, ids=lambda place: place[1]["name"])
def test_a_block_is_a_table_with_its_source_or_words(place):
    _, block = place
    lines = block["body"].strip().splitlines()
    if block["kind"] == "value":
        assert lines
        assert "|" not in block["body"]
        return
    rows = [line.replace(r"\|", "").count("|") for line in lines if line.startswith("|")]
    assert len(rows) > 2
    assert len(set(rows)) == 1
    said = " ".join(line for line in lines if not line.startswith("|"))
    asked = MAKERS[block["name"]].commands
    assert EVERY in asked or all(f"`{typed(one)}`" in said for one in asked)


def test_a_run_becomes_a_table_once_and_a_missing_one_changes_nothing(tmp_path, monkeypatch):
    folder = run("clt", SETTINGS, out=tmp_path).folder
    assert not found_runs([tmp_path])  # its page comes last
    (folder / "report.html").touch()
    runs = found_runs([tmp_path])
    assert list(runs) == [ASKED]

    def deviations(run):
        return pd.DataFrame({"n": run.curves["n"].unique()})

    both = {
        "here": Maker("table", deviations, (ASKED,)),
        "points": Maker("value", lambda run: len(run.table), (ASKED,)),
        "away": Maker("table", deviations, ("clt --paper",)),
    }
    monkeypatch.setattr("evidence.blocks.MAKERS", both)
    page = (
        "<!-- table: here -->\n<!-- end -->\n\nAt <!-- value: points -->0<!-- end --> points.\n\n"
        "<!-- table: away -->\nas it was\n<!-- end -->\n"
    )
    made, stayed = rewritten(page, runs)
    assert "| n |\n| --- |\n| 20 |\n| 50 |\n\n*`attnlimit reproduce clt" in made
    assert "-->2<!-- end --> points" in made
    assert "as it was" in made
    assert stayed == ["away waits for clt --paper"]
    assert rewritten(made, runs) == (made, stayed)


def test_what_a_study_keeps_becomes_a_table(tmp_path, monkeypatch, capsys):
    kept = study("kept")
    monkeypatch.setattr(kept, "EVIDENCE", tmp_path)
    monkeypatch.setattr(sys, "argv", [str(ROOT / "studies" / "made_up.py"), "20", "a b"])
    monkeypatch.setattr(sys.modules["__main__"], "__doc__", "Is it so?\n\nYes.")
    one = pd.DataFrame({"n": [1, 2], "error": [0.1, np.inf], "stderr": [0.001, np.nan]})
    assert kept.keep(one).parent == tmp_path / "studies"
    assert "0.1" in capsys.readouterr().out
    kept.keep(command="make made-up", errors=one, others=one[:1])
    row = Row("a law", measured=2.0, baseline=6.0, target=20.0)
    write("theory", "How fast?", [row], 3.0, tmp_path / "report" / "bench.json")
    write("output", "How cheap?", [row], 4.0, tmp_path / "report" / "bench.json")
    runs = found_runs([tmp_path])
    asked = "python studies/made_up.py 20 'a b'"
    suites = {"python -m benchmarks theory", "python -m benchmarks output"}
    assert {*runs} == {asked, "make made-up", *suites}
    pd.testing.assert_frame_equal(runs[asked].table, one)
    assert len(runs["make made-up"].tables["others"]) == 1
    assert runs["python -m benchmarks theory"].table["ratio"].item() == 3.0
    assert runs[asked].title == "Is it so?"

    def found(study):
        return study.table[["n"]]

    monkeypatch.setattr("evidence.blocks.MAKERS", {"found": Maker("table", found, (asked,))})
    made, stayed = rewritten("<!-- table: found -->\n<!-- end -->\n", runs)
    assert not stayed
    assert f"| 2 |\n\n*`{asked}`: {runs[asked].made}, " in made
    assert rewritten(made, {})[1] == [f"found waits for {asked}"]


def test_what_a_study_compares_is_said_where_it_is_asked_for():
    rows = [{"predicted": 1.0, "measured": 1.02, "stderr": 0.01}] * 2
    found = Study({"tables": {"table": rows}})
    assert found.remarks("") == []
    (said,) = found.remarks("against measured")
    assert "at 2 points: root mean square difference 2.00 combined errors" in said
    assert "median distance 1.96 %" in said


def test_a_picture_of_a_study_lies_beside_its_tables(tmp_path, monkeypatch):
    kept = study("kept")
    monkeypatch.setattr(kept, "EVIDENCE", tmp_path)
    monkeypatch.setattr(sys, "argv", [str(ROOT / "studies" / "made_up.py"), "20"])
    kept.keep_picture(Figure())
    assert [one.name for one in (tmp_path / "studies").iterdir()] == ["made_up-20.png"]


def test_studies_that_tables_ask_for_are_there_and_asked_for_once():
    asked = {one for maker in MAKERS.values() for one in maker.commands}
    studies = [one for one in asked if one.startswith("python studies/")]
    assert all((ROOT / one.split()[1]).exists() for one in studies)
    everything = commands({})
    assert {one for one in asked if one.startswith(COMMANDS)} < {*everything}
    assert "attnlimit reproduce clt --paper" in everything
    assert len({*everything}) == len(everything)
    assert "attnlimit reproduce clt --paper" not in commands({"clt --paper": None})


def test_lines_of_experiments_without_a_run_stay(tmp_path):
    folder = run("clt", SETTINGS, out=tmp_path).folder
    (folder / "report.html").touch()
    page = (
        "<!-- table: predicted-and-measured -->\n| experiment | quantity | points | "
        "predicted / measured | standard error | rms z | beyond 3 |\n| --- | --- |\n"
        "| `gaussian` | mean | 96 | 1 | 2 | 3 | 4 |\n| `clt` | error | 25 | 1 | 2 | 3 | 4 |\n"
        "<!-- end -->\n"
        "<!-- table: all-runs -->\n| what | command | version, day | seconds |\n"
        "| --- | --- | --- | --- |\n| Older | `attnlimit reproduce gaussian --paper` | 0.1 | 7 |\n"
        "| Older | `attnlimit reproduce clt --seed 7` | 0.1 | 8 |\n<!-- end -->\n"
    )
    made, _ = rewritten(page, found_runs([tmp_path]))
    assert "| `gaussian` | mean | 96 | 1 | 2 | 3 | 4 |" in made
    assert "| `clt` | error | 25 |" not in made
    assert "| `clt` | error | 2 | " in made
    assert "| Older | `attnlimit reproduce gaussian --paper` | 0.1 | 7 |" in made
    assert "clt --seed 7" not in made  # there is another run of it, and no table asks for this one
    assert f"| `attnlimit reproduce {ASKED}` |" in made
    assert "| `attnlimit reproduce sphere --paper` | no run yet |" in made
    assert rewritten(made, found_runs([tmp_path]))[0] == made


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (number(0.000081), "0.0000810"),
        (number(9.996, 2), "10"),
        (number(float("nan")), ""),
        (measured(0.4601, 0.0204), "0.460 ± 0.020"),
        (measured(1234.5, 31.0), "1234 ± 31"),
        (measured(0.00252, 0.00005), "0.00252 ± 0.00005"),
    ],
)
def test_numbers_are_short(shown, said):
    assert shown == said
