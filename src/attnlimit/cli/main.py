"""What does `attnlimit` do? It finds the command, and turns any failure into one sentence."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated

import typer
from rich.console import Console

import attnlimit
from attnlimit.errors import AttnlimitError

# Modules with a `register(app)`; a new command is one file and one line here.
COMMANDS = (
    "attnlimit.cli.demo",
    "attnlimit.cli.measure",
    "attnlimit.cli.plan",
    "attnlimit.cli.report",
    "attnlimit.cli.reproduce",
    "attnlimit.cli.runs",
    "attnlimit.cli.cluster",
    "attnlimit.cli.cost",
    "attnlimit.cli.models",
    "attnlimit.cli.tokens",
    "attnlimit.cli.sparse",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"attnlimit {attnlimit.__version__}")
        raise typer.Exit


def build() -> typer.Typer:
    """Return the command line with every command on it."""
    app = typer.Typer(
        name="attnlimit",
        help="How many tokens are enough for attention: predicted exactly, measured honestly.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(
        version: Annotated[
            bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")
        ] = False,
    ) -> None:
        """How many tokens are enough for attention: predicted exactly, measured honestly."""

    for module in COMMANDS:
        import_module(module).register(app)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; errors are one sentence on stderr and exit code 2."""
    from attnlimit.runs import Interrupted

    errors = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    try:
        build()(args=arguments)
    except Interrupted as error:
        errors.print(str(error))
        sys.exit(130)
    except AttnlimitError as error:
        errors.print(f"Error: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("Stopped.")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)
    except MemoryError:
        errors.print("Error: not enough memory for these sizes; choose fewer or smaller n.")
        sys.exit(2)
    except OSError as error:
        errors.print(f"Error: {error}")
        sys.exit(2)
    except Exception as error:
        if os.environ.get("ATTNLIMIT_DEBUG"):
            raise
        errors.print(
            f"This is a bug in attnlimit: {type(error).__name__}: {error}. "
            "Set ATTNLIMIT_DEBUG=1 to see where it happened."
        )
        sys.exit(1)
