"""The documentation names every public thing, and says what each argument is."""

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
public_names = pytest.importorskip("public_names", reason="needs the extra `docs`").public_names

NAMES = [name for names in public_names().values() for name in names]
SHARED = {
    name
    for line in (ROOT / "docs/reference/arguments.md").read_text().splitlines()
    if line.startswith("`")
    for name in re.findall(r"`(\w+)`", line)
}
PAGES = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def found(name):
    module, _, last = name.rpartition(".")
    return getattr(import_module(module), last)


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_says_what_it_is_and_what_it_takes(name):
    thing = found(name)
    text = inspect.getdoc(thing)
    assert text, f"{name} has no docstring"
    if inspect.isfunction(thing):
        said = set(re.findall(r"\w+", text)) | SHARED
        taken = inspect.signature(thing).parameters.values()
        named = [one.name for one in taken if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
        silent = [name for name in named if name not in said]
        assert not silent, f"{name} does not say what {', '.join(silent)} is"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page):
    if "_build" in page.parts or "gallery" in page.parts:
        return
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        if not target.startswith("gallery/") and "/gallery/" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_pages_have_short_lines():
    long = [
        f"{page.relative_to(ROOT)}:{number}"
        for page in PAGES
        if "_build" not in page.parts and "gallery" not in page.parts
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if len(line) > 120 and not line.startswith(("|", "    ", "\\")) and "$" not in line
        and not re.search(r"\\(mathbb|frac|sum|text|begin|big)", line)
    ]  # fmt: skip
    assert not long
