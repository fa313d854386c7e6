"""Markdown fragments: numbers with their errors, the source of a table, rows that are replaced."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tables
from attnlimit.reproduce import EXPERIMENTS, run
from tables import format_measured, format_number, markdown_table, update_rows, write_fragment

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "docs" / "tables"
PAGES = [page for page in ROOT.glob("docs/**/*.md") if not {"_build", "tables"} & {*page.parts}]
INCLUDE = re.compile(r"^```\{include\} (\S+)\n```$", re.M)
COMMAND = re.compile(r"`((?:attnlimit reproduce|python -m|python|make) [^`]+)`")
SOURCE = {"command": "attnlimit demo", "version": "1.0", "created": "2026-01-02", "seconds": 3.4}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_number(0.000081), "0.0000810"),
        (format_number(9.996, 2), "10"),
        (format_number(float("nan")), ""),
        (format_measured(0.4601, 0.0204), "0.460 ± 0.020"),
        (format_measured(1234.5, 31.0), "1234 ± 31"),
        (format_measured(0.00252, 0.00005), "0.00252 ± 0.00005"),
    ],
)
def test_numbers_are_rounded_to_their_error(text, expected):
    assert text == expected


def test_standard_errors_are_shown_beside_their_column():
    frame = pd.DataFrame({"n": [5], "measured": [0.5], "stderr": [0.1], "rate_b": ["x|y"]})
    assert markdown_table(frame).splitlines() == [
        "| n | measured | rate b |",
        "| --- | --- | --- |",
        r"| 5 | 0.50 ± 0.10 | x\|y |",
    ]


def test_errors_of_a_prediction_and_of_its_measurement_are_told_apart():
    row = {"a": 0.5, "a measured": 0.51, "a stderr": 0.02, "a numerical error": 0.001, "b": 2.0}
    header, _, cells = markdown_table(pd.DataFrame([row | {"b stderr": 0.1}])).splitlines()
    assert header == "| a | a measured | b |"
    assert cells == "| 0.5000 ± 0.0010 | 0.510 ± 0.020 | 2.00 ± 0.10 |"


def test_a_fragment_states_its_source(tmp_path):
    path = write_fragment(tmp_path, "rates", pd.DataFrame({"n": [1.0, np.inf]}), SOURCE, "Close.")
    assert path.read_text().endswith("| ∞ |\n\n*`attnlimit demo`: 1.0, 2026-01-02, 3 s.* Close.\n")


def test_rows_are_replaced_by_key_and_new_ones_are_added(tmp_path):
    path = tmp_path / "all.md"
    path.write_text("| name | n |\n| --- | --- |\n| a | 1 |\n| b | 2 |\n| b | 3 |\n| c | 4 |\n")
    update_rows(path, pd.DataFrame({"name": ["b", "d"], "n": [7, 8]}), "name")
    assert path.read_text().splitlines()[2:] == ["| a | 1 |", "| b | 7 |", "| c | 4 |", "| d | 8 |"]


def test_every_fragment_is_included_and_every_include_exists():
    included = {
        (page.parent / name).resolve()
        for page in PAGES
        for name in INCLUDE.findall(page.read_text())
    }
    assert sorted(path.name for path in included) == sorted(path.name for path in TABLES.iterdir())
    assert all(path.is_file() for path in included)


@pytest.mark.parametrize("path", sorted(TABLES.iterdir()), ids=lambda path: path.stem)
def test_a_fragment_is_a_table_whose_source_can_be_run(path):
    text = path.read_text()
    rows = [row.replace(r"\|", "").count("|") for row in text.splitlines() if row.startswith("|")]
    assert len(rows) > 2
    assert len(set(rows)) == 1
    for command in COMMAND.findall(text):
        first, *words = command.split()
        if first == "attnlimit":
            assert words[1] in EXPERIMENTS or (ROOT / words[1]).is_file()
        elif first == "python" and words[0] != "-m":
            assert (ROOT / words[0]).is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_table_of_numbers_is_typed_by_hand(page):
    """A table in a page may have one decimal number: a setting, not a result."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    tables = [re.sub(r"`.*?`", "", part) for part in re.findall(r"(?:^\|.*\n)+", text, re.M)]
    decimal = r"(?<![\w.])\d+\.\d+(?![\w.])"
    assert [part for part in tables if len(re.findall(decimal, part)) > 1] == []


def test_a_study_writes_its_tables_and_lists_its_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tables, "TABLES", tmp_path)
    (tmp_path / "all-runs.md").write_text("| what | command | version, day | seconds |\n|---|\n")
    monkeypatch.setattr(sys, "argv", [str(ROOT / "studies" / "example.py"), "20", "a b"])
    monkeypatch.setattr(sys.modules["__main__"], "__doc__", "Example study.")
    tables.write_tables({"rates": pd.DataFrame({"rate": [0.5]})})
    assert "0.5" in capsys.readouterr().out
    command = "`python studies/example.py 20 'a b'`"
    assert f"*{command}: " in (tmp_path / "rates.md").read_text()
    assert f"| Example study | {command} |" in (tmp_path / "all-runs.md").read_text()


def test_a_result_has_a_source(tmp_path, monkeypatch):
    settings = {"horizons": [0.5], "n": [20, 50], "replicates": 40, "block": 20}
    result = run("clt", settings, out=tmp_path)
    monkeypatch.syspath_prepend(ROOT / "docs")
    from make_evidence import source_of

    source = source_of(result)
    assert source["command"].startswith("attnlimit reproduce clt --set ")
    assert source["seconds"] > 0


def test_the_evidence_script_names_what_it_can_run():
    script = ROOT / "docs" / "make_evidence.py"
    done = subprocess.run([sys.executable, script, "none"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "there are gaussian, " in done.stderr
