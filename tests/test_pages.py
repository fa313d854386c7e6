"""Every command that README, tutorials and guides print is one that the command line takes."""

import re
import shlex
from pathlib import Path

import pytest

from attnlimit.cli.main import load_command

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in ROOT.glob("docs/**/*.md") if not {"_build", "api"} & {*page.parts}),
]
COMMAND = re.compile(r"^(?:\$ |    )(attnlimit [a-z][^\n]*)|`(attnlimit [a-z][^`]*)`", re.M)


def commands(page):
    """What a page says to type, without comments and what is left out."""
    text = page.read_text(encoding="utf-8")
    found = [" ".join((shown or said).split()) for shown, said in COMMAND.findall(text)]
    return [one.split(" ...")[0].rstrip(" .") for one in found]


SAID = {command: page.relative_to(ROOT).as_posix() for page in PAGES for command in commands(page)}


@pytest.mark.parametrize("line", SAID, ids=lambda line: f"{SAID[line]}: {line}")
def test_a_command_on_a_page_is_understood(line):
    _, name, *words = shlex.split(line, comments=True)
    command = load_command(name)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if words and not hasattr(command, "commands"):
        command.make_context(line, words)
