"""Pages keep to what is there: commands that are understood, formats, what is not proved."""

import re
import shlex
from pathlib import Path

import pytest

from attnlimit import Plan
from attnlimit.cli.main import load_command

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted(
        page
        for page in ROOT.glob("docs/**/*.md")
        if not {"_build", "api", "tables", "technical_report"} & {*page.parts}
    ),
]
COMMAND = re.compile(r"^(?:\$ |    )(attnlimit [a-z][^\n]*)|`(attnlimit [a-z][^`]*)`", re.M)


def commands(page):
    """What a page says to type, without comments and what is left out."""
    text = page.read_text(encoding="utf-8")
    results = [" ".join((shown or plain).split()) for shown, plain in COMMAND.findall(text)]
    return [result.split(" ...")[0].rstrip(" .") for result in results]


SAID = {command: page.relative_to(ROOT).as_posix() for page in PAGES for command in commands(page)}


@pytest.mark.parametrize("line", SAID, ids=lambda line: f"{SAID[line]}: {line}")
def test_a_command_on_a_page_is_understood(line):
    _, name, *words = shlex.split(line, comments=True)
    command = load_command(name)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if words and not hasattr(command, "commands"):
        command.make_context(line, words)


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_ends_with_what_to_do_next(page):
    last = page.read_text(encoding="utf-8").rstrip().rpartition("\n\n")[2]
    assert last.startswith("**Next:** ")
    assert "](" in last or "`" in last


CODE = [
    f"/{path.relative_to(ROOT).as_posix()}"
    for folder in ("src", "tests", "studies", "benchmarks", "examples", "docs")
    for path in (ROOT / folder).rglob("*.py")
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_modules_that_a_page_names_are_there(page):
    named = re.findall(r"`([a-z][\w/]*\.py)`", page.read_text(encoding="utf-8"))
    assert [entry for entry in named if not any(path.endswith(f"/{entry}") for path in CODE)] == []


def test_every_schema_is_on_the_page_of_file_formats():
    page = (ROOT / "docs/reference/files.md").read_text(encoding="utf-8")
    code = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    schemas = {entry for text in code for entry in re.findall(r'^SCHEMA = "(.*)"', text, re.M)}
    assert len(schemas) > 3
    assert [schema for schema in schemas if f"`{schema}`" not in page] == []


def test_the_page_of_file_formats_names_every_field_of_a_plan():
    page = (ROOT / "docs/reference/files.md").read_text(encoding="utf-8")
    table = page.split("## A plan")[1]
    shown = {
        name
        for row in re.findall(r"^\| (`[^|]*) \|", table, re.M)
        for name in re.findall(r"`(\w+)`", row)
    }
    saved = set(Plan.model_fields) | {"schema", "digest"}
    assert shown == saved


THEORY = [page for page in sorted(ROOT.glob("docs/theory/*.md")) if page.name != "index.md"]


KINDS = {"Proved", "Exact", "Exact as d → ∞", "Quadrature", "First order", "Fitted", "Simulated"}


@pytest.mark.parametrize("page", THEORY, ids=lambda page: page.name)
def test_a_page_of_theory_begins_with_what_holds_and_is_listed(page):
    text = page.read_text(encoding="utf-8")
    box = re.search(r":::\{admonition\} What holds\n(.*?):::", text.split("\n## ")[0], re.S)
    assert box, f"{page.name} has no box before its first section"
    kinds = set(re.findall(r"^- \*\*(.*?):\*\*", box[1], re.M))
    assert kinds & KINDS
    assert kinds - KINDS <= {"Not proved"}
    assert f"({page.name})" in (page.parent / "index.md").read_text(encoding="utf-8")
