"""Light imports, help without heavy imports, and public names that load when first used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import attnlimit
from attnlimit.cli.main import COMMANDS, load_command

PACKAGE = Path(attnlimit.__file__).parent
HEAVY = ("torch", "transformers", "scipy", "pandas", "pyarrow", "matplotlib", "plotly", "dask")
# The libraries first, once; then each package in a process of its own, as if it came first.
EACH_FIRST = """
import importlib, os, sys
import torch, scipy.stats, scipy.optimize, pandas, pyarrow.parquet, typer
for name in sys.argv[1:]:
    if not (child := os.fork()):
        try:
            importlib.import_module(name)
        except BaseException as error:
            print(name, repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    os.waitpid(child, 0)
"""


def output_of(*arguments: str) -> str:
    """Output of a fresh Python."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("what", ["import attnlimit", "import attnlimit.cli"])
def test_nothing_heavy_is_imported_before_it_is_used(what):
    loaded = set(output_of("-c", f"{what}\nimport sys\nprint(*sys.modules)").split())
    assert loaded & set(HEAVY) == set()


def test_help_names_every_command_and_imports_none():
    code = (
        "import sys, attnlimit.cli\n"
        "try:\n    attnlimit.cli.main(['--help'])\n"
        "except SystemExit as done:\n    print('code', done.code, *sys.modules)"
    )
    help_text, _, after = output_of("-c", code).rpartition("code")
    assert all(name in help_text for name in COMMANDS)
    assert set(after.split()) & set(HEAVY) == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_imports_nothing_heavy(name):
    code = (
        "import sys\nfrom attnlimit.cli.main import load_command, main\n"
        f"below = getattr(load_command({name!r}), 'commands', {{}}) or ['']\n"
        "for sub in below:\n"
        f"    try:\n        main([word for word in ({name!r}, sub, '--help') if word])\n"
        "    except SystemExit as done:\n        assert not done.code\n"
        "print('code', *sys.modules)"
    )
    help_text, _, after = output_of("-c", code).rpartition("code")
    assert f"attnlimit {name}" in help_text
    assert set(after.split()) & set(HEAVY) == set()


def test_the_module_is_the_command_line():
    assert output_of("-m", "attnlimit", "--version").split() == ["attnlimit", attnlimit.__version__]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_found_where_the_table_says(name):
    command = load_command(name)
    assert command.name == name
    assert COMMANDS[name].endswith(".")


def test_every_public_name_is_there_and_listed():
    for name in attnlimit.__all__:
        assert getattr(attnlimit, name) is not None
        assert name in dir(attnlimit)
    with pytest.raises(AttributeError, match="nothing"):
        attnlimit.nothing  # noqa: B018


def test_every_package_can_be_imported_first():
    packages = [path.parent for path in PACKAGE.rglob("__init__.py")]
    entries = {*packages, *(path.with_suffix("") for path in PACKAGE.glob("*.py"))} - {
        PACKAGE / "__init__", PACKAGE / "__main__"
    }  # fmt: skip
    names = [".".join(path.relative_to(PACKAGE.parent).parts) for path in sorted(entries)]
    assert len(names) > 20
    assert output_of("-c", EACH_FIRST, *names) == ""
