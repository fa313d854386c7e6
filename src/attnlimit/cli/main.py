"""The command line: commands that are imported when chosen, and errors as one sentence."""

from __future__ import annotations

import inspect
import json
import os
import sys
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from typer.core import TyperGroup

import attnlimit
from attnlimit.errors import AttnlimitError, Interrupted

# A command's module has its name, and a function of that name or a group of commands, `app`; it is
# imported when the command is chosen.
COMMANDS = {
    "demo": "Plan a language model on an article, measure the plan, and write a page.",
    "plan": "Plan which keys a model reads to keep its output within a target.",
    "evaluate": "Run a model on fewer keys or a smaller cache, and compare outputs.",
    "generate": "Continue a text while every token reads few keys of the cache.",
    "export": "Write a plan for kvpress, DuoAttention and other tools.",
    "capture": "Write queries, keys and values of a model's heads to a folder.",
    "reproduce": "Run an experiment of the papers: table, figure and page.",
    "bags": "Plan the bags and instances that a multiple-instance classifier needs.",
    "tokens": "Shade a text by the influence of each token.",
    "models": "List the models and texts that are available here.",
    "runs": "List, show and compare run folders, and write their pages.",
}
SETTINGS = {"help_option_names": ["-h", "--help"]}


class LazyGroup(TyperGroup):
    """Commands that are imported when one of them is chosen."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the named command."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if command is None else load_command(str(command.name)), rest


def load_command(name: str) -> Any:
    """Import a command's module, and return the command."""
    module = import_module(f"attnlimit.cli.{name}")
    root = typer.Typer(callback=lambda: None, context_settings=SETTINGS)
    if hasattr(module, "app"):
        root.add_typer(module.app, name=name)
    else:
        command = getattr(module, name)
        paragraphs = (inspect.getdoc(command) or "").split("\n\n")
        unwrapped = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        root.command(name, help=unwrapped)(command)
    return typer.main.get_group(root).commands[name]


def _version(shown: bool) -> None:
    if shown:
        typer.echo(f"attnlimit {attnlimit.__version__}")
        raise typer.Exit


def build() -> typer.Typer:
    """Return the command line with every command on it."""
    app = typer.Typer(
        name="attnlimit",
        cls=LazyGroup,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings=SETTINGS,
    )

    @app.callback()
    def root(
        version: Annotated[
            bool,
            typer.Option(
                "--version", callback=_version, is_eager=True, help="Show the version and exit."
            ),
        ] = False,
    ) -> None:
        """How many tokens are enough for attention: predicted, then measured."""

    for name, line in COMMANDS.items():
        app.command(name, help=line)(lambda: None)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; errors are one sentence on stderr and exit code 2.

    With `--json` they are a JSON object on stdout as well, so that a program can read them.
    """
    given = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in given
    try:
        options = {"prog_name": "attnlimit", "standalone_mode": not as_json}
        sys.exit(build()(args=given, obj=given, **options) or 0)
    except (Interrupted, KeyboardInterrupt) as error:
        _fail(str(error) or "Stopped.", 130, as_json)
    except BrokenPipeError:
        sys.exit(1)
    except MemoryError:
        _fail("Error: not enough memory for these sizes; choose fewer or smaller n.", 2, as_json)
    except AttnlimitError as error:
        _fail(f"Error: {error}", 2, as_json)
    except OSError as error:
        known = error.filename is not None and error.strerror is not None
        reason = f"Cannot read or write {error.filename}: {error.strerror}." if known else error
        _fail(f"Error: {reason}", 2, as_json)
    except Exception as error:
        if hasattr(error, "format_message"):  # an error of typer about options
            _fail(error.format_message(), 2, as_json)
        if os.environ.get("ATTNLIMIT_DEBUG"):
            raise
        sentence = (
            f"This is a bug in attnlimit: {type(error).__name__}: {error}. "
            "Set ATTNLIMIT_DEBUG=1 to see where it happened."
        )
        _fail(sentence, 1, as_json)


def _fail(sentence: str, code: int, as_json: bool) -> NoReturn:
    if as_json:
        print(json.dumps({"error": sentence.removeprefix("Error: "), "exit_code": code}))
    Console(stderr=True, highlight=False, soft_wrap=True, markup=False).print(sentence)
    sys.exit(code)
