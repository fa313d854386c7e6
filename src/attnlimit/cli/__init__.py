"""The command line: one file for each command."""

from attnlimit.cli.main import main

__all__ = ["main"]
