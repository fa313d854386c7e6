"""Help of every command, written into the reference when the site is built."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from attnlimit.cli.main import COMMANDS, load_command

HELP_WIDTH = 88


class CommandLine(SphinxDirective):
    """`.. command-line::` gives a section a command, with the help that the terminal shows."""

    def run(self) -> list[nodes.Node]:
        """One section a command, in the order of `attnlimit --help`."""
        sections = []
        for name in COMMANDS:
            for path, command in walked(f"attnlimit {name}", load_command(name)):
                section = nodes.section(ids=[nodes.make_id(path)], names=[path])
                section += nodes.title(text=path)
                text = help_text(path, command)
                section += nodes.literal_block(text, text, language="text")
                sections.append(section)
        return sections


def walked(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command, then those below it."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from walked(f"{path} {name}", below)


def help_text(path: str, command: Any) -> str:
    """What `--help` prints, without colours and boxes."""
    command.rich_markup_mode = None
    context = typer.Context(command, info_name=path, max_content_width=HELP_WIDTH)
    context.terminal_width = HELP_WIDTH
    formatter = context.make_formatter()
    command.format_usage(context, formatter)
    command.format_help_text(context, formatter)
    command.format_options(context, formatter)
    return formatter.getvalue()


def setup(app: Sphinx) -> dict[str, Any]:
    """Make the directive known."""
    app.add_directive("command-line", CommandLine)
    app.add_config_value("command_line_source", str(Path(__file__)), "env")
    return {"parallel_read_safe": True}
