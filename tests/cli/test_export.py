"""`attnlimit export`: files for other tools, and one sentence for what cannot be."""

import json

import pytest

import attnlimit as al
from attnlimit.planning.export import FORMATS
from called import call
from planning.test_export import output_plan


@pytest.fixture
def budget(tmp_path):
    keys = [[10, 20, 20, 10], [60, 10, 10, 10]]
    samplers = [[al.Threshold(32.0)] * 4] * 2
    made = output_plan(samplers, keys, model="[red]made", tokens=(48,))
    return made.write(tmp_path / "budget.json")


def test_help_names_every_format():
    assert all(name in call("export", "--help")[1] for name in FORMATS)


@pytest.mark.parametrize("to", FORMATS)
def test_every_format_is_written_beside_the_plan(budget, to):
    code, out, err = call("export", budget, "--to", to, "--recent", 8, "--json")
    assert code == 0, err
    answer = json.loads(out)
    folder = budget.with_name(f"budget-{to}")
    assert answer["folder"] == str(folder)
    assert answer["lost"].endswith(".")
    assert {path.name for path in folder.iterdir()} == {*answer["files"], "export.json"}
    stored = json.loads((folder / "export.json").read_text())
    assert stored == {name: answer[name] for name in stored}


def test_people_read_how_it_is_used_and_what_is_lost(budget, tmp_path):
    arguments = ["export", budget, "--to", "layers", "--recent", 8, "--out", tmp_path / "out"]
    code, out, err = call(*arguments)
    assert code == 0, err
    assert "[red]made" in out
    assert "give each layer its tokens" in out
    assert "share its pages" in err
    code, _, err = call(*arguments)
    assert code == 2
    assert "is not empty" in err
    assert call(*arguments, "--force")[0] == 0


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (None, ["--to", "paper"], "must be one of kvpress, duo"),
        (None, ["--to", "duo", "--recent", -1], "recent must be at least 0"),
        (None, ["--to", "duo", "--recent", 60], "keep all of the plan's 48"),
        (None, ["--to", "duo", "--out", "FILE"], "is a file; give a folder"),
        ("{}", ["--to", "duo"], "is not a plan"),
        ("[1]", ["--to", "duo"], "is not a plan"),
        ("{", ["--to", "duo"], "is damaged"),
        ('{"schema": "attnlimit.plan/4"}', ["--to", "duo"], "is damaged"),
        ('{"schema": "attnlimit.output-plan/3"}', ["--to", "duo"], "another version"),
    ],
)
def test_a_wrong_export_is_one_sentence(budget, content, options, message):
    if content is not None:
        budget.write_text(content)
    given = [budget if option == "FILE" else option for option in options]
    code, _, err = call("export", budget, "--recent", 8, *given)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_a_file_that_is_not_there(tmp_path):
    code, out, _ = call("export", tmp_path / "none.json", "--to", "hub", "--json")
    assert code == 2
    assert "none.json" in json.loads(out)["error"]
