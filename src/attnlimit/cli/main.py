"""What does `attnlimit` do? It finds the command, and turns any failure into one sentence."""

from __future__ import annotations

import inspect
import json
import os
import sys
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from typer.core import TyperGroup

import attnlimit
from attnlimit.cli.options import with_options
from attnlimit.errors import AttnlimitError, Interrupted

# Each command, its module, and its line of help: the module is only imported when its command is
# chosen. It has a function of the command's name, or a group of commands, `app`.
COMMANDS = {
    "demo": ("measure", "How few keys are enough for MiniLM on an article, to a page."),
    "plan": ("plan", "How few keys keep a model's output, or the output of each head by itself."),
    "capture": ("capture", "Write what a model's heads read to a folder, which others plan from."),
    "export": ("export", "Write a plan's budgets as kvpress, DuoAttention and others read them."),
    "try": ("try_", "Run a model on fewer keys: what that does to its output."),
    "measure": (
        "measure",
        "Plan for the output, look at every head, measure both; write the page.",
    ),
    "reproduce": ("reproduce", "Run an experiment of the papers: a run folder, a figure, a table."),
    "sparse": ("sparse", "Sparse-token classification: learning curves, plans for bags."),
    "report": ("report", "Build the page of a finished run again."),
    "compare": ("report", "Put two runs of one kind side by side."),
    "explorer": ("report", "Write the page of sliders over the exact laws."),
    "tokens": ("tokens", "Shade a text by the influence of each token."),
    "cost": (
        "cost",
        "Predict the hours and memory of plan --heads and measure, before they are run.",
    ),
    "models": ("models", "List the models and texts that are available here."),
    "runs": ("runs", "List, show and remove run folders."),
    "cluster": ("cluster", "Say how to start a cluster, or check one."),
}
HELP_WITHOUT_ARGUMENTS = {"reproduce", "report", "compare"}
SETTINGS = {"help_option_names": ["-h", "--help"]}


class LazyGroup(TyperGroup):
    """Commands that are names and lines of help until one of them is chosen."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command that was named."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found if found is None else load_command(str(found.name)), rest


def load_command(name: str) -> Any:
    """Import a command's module, and return the command."""
    module = import_module(f"attnlimit.cli.{COMMANDS[name][0]}")
    root = typer.Typer(callback=lambda: None, context_settings=SETTINGS)
    if hasattr(module, "app"):
        root.add_typer(module.app, name=name)
    else:
        command = getattr(module, f"{name}_" if iskeyword(name) else name)
        paragraphs = (inspect.getdoc(command) or "").split("\n\n")
        shown = root.command(
            name,
            help="\n\n".join(" ".join(one.split()) for one in paragraphs),  # any terminal's width
            no_args_is_help=name in HELP_WITHOUT_ARGUMENTS,
        )
        shown(with_options(command))
    return typer.main.get_group(root).commands[name]


def _version(asked: bool) -> None:
    if asked:
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
            typer.Option("--version", callback=_version, is_eager=True, help="Print it, and stop."),
        ] = False,
    ) -> None:
        """How many tokens are enough for attention: predicted, then measured."""

    for name, (_, line) in COMMANDS.items():
        app.command(name, help=line)(lambda: None)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; errors are one sentence on stderr and exit code 2.

    With `--json` they are a JSON object on stdout as well, so that a program can read them.
    """
    given = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in given
    try:
        sys.exit(build()(args=given, prog_name="attnlimit", standalone_mode=not as_json) or 0)
    except (Interrupted, KeyboardInterrupt) as error:
        _fail(str(error) or "Stopped.", 130, as_json)
    except BrokenPipeError:
        sys.exit(1)
    except MemoryError:
        _fail("Error: not enough memory for these sizes; choose fewer or smaller n.", 2, as_json)
    except AttnlimitError as error:
        _fail(f"Error: {error}", 2, as_json)
    except OSError as error:
        _fail(f"Error: {_said(error)}", 2, as_json)
    except Exception as error:
        if hasattr(error, "format_message"):  # what typer has to say about options
            _fail(error.format_message(), 2, as_json)
        if os.environ.get("ATTNLIMIT_DEBUG"):
            raise
        sentence = (
            f"This is a bug in attnlimit: {type(error).__name__}: {error}. "
            "Set ATTNLIMIT_DEBUG=1 to see where it happened."
        )
        _fail(sentence, 1, as_json)


def _said(error: OSError) -> str:
    """What the system refused, of which file."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"Cannot read or write {error.filename}: {error.strerror}."


def _fail(sentence: str, code: int, as_json: bool) -> NoReturn:
    if as_json:
        print(json.dumps({"error": sentence.removeprefix("Error: "), "exit_code": code}))
    Console(stderr=True, highlight=False, soft_wrap=True, markup=False).print(sentence)
    sys.exit(code)
