"""The Python of README and guides runs as it is printed, and prints what is shown below it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/start.md", "docs/montecarlo.md", "docs/reproduce.md")
BLOCKS = [
    pytest.param(block, shown, id=f"{page}-{number}")
    for page in PAGES
    for number, (block, shown) in enumerate(
        re.findall(
            r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?",
            (ROOT / page).read_text(encoding="utf-8"),
            re.S,
        )
    )
]


def without_digits(text: str) -> str:
    """A line with a mark for each number, for last digits differ between machines."""
    return " ".join(re.sub(r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?", "#", text).split())


@pytest.mark.slow
@pytest.mark.parametrize(("block", "shown"), BLOCKS)
def test_a_block_runs_and_prints_what_is_shown(block, shown):
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 1 or "print" not in block
    printed = without_digits(done.stdout)
    for line in shown.splitlines():
        assert without_digits(line.removesuffix("...")) in printed, line


NAMES = re.compile(r"\bal((?:\.[A-Za-z_]\w*)+)")
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]


def test_names_that_pages_call_are_there():
    import attnlimit as al

    wrong = []
    for page in WRITTEN:
        if {"_build", "api", "gallery"} & {*page.parts}:
            continue
        for name in NAMES.findall(page.read_text(encoding="utf-8")):
            thing = al
            for part in name.split(".")[1:]:
                if not hasattr(thing, part):
                    wrong.append(f"{page.relative_to(ROOT)}: al{name}")
                    break
                thing = getattr(thing, part)
    assert wrong == []
