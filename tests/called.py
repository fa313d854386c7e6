"""Commands called in this process, and the sizes at which a model's run takes a second."""

import contextlib
import io

import pytest

from attnlimit.cli import main


def call(*arguments):
    """Exit code, stdout and stderr of one command."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as exit_info,
    ):
        main([str(argument) for argument in arguments])
    return exit_info.value.code or 0, out.getvalue(), err.getvalue()
