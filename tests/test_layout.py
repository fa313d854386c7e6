"""Layout of the package: sizes of modules and packages, docstrings, and private names in tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from statistics import median

import pytest

import attnlimit

PACKAGE = Path(attnlimit.__file__).parent
TESTS = Path(__file__).parent
ROOT = TESTS.parent
LENGTHS = {
    path.relative_to(PACKAGE).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
    for path in PACKAGE.rglob("*.py")
}
MODULES = {name: lines for name, lines in LENGTHS.items() if not name.endswith("__init__.py")}
# Weights and packages come from wherever the user's tools are set up to look.
HOSTS = re.compile(
    r"(pypi|pythonhosted|anaconda|conda-forge|jfrog|nexus|artifactory)\S*\.(org|com|io)"
)


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def private_names(source: ast.Module) -> set[str]:
    """Private names of the package that a test imports, or reaches for in a module."""
    result = set()
    modules = {"attnlimit"}
    for node in ast.walk(source):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("attnlimit"):
            result |= {alias.name for alias in node.names if is_private(alias.name)}
            modules |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            named = [alias for alias in node.names if alias.name.startswith("attnlimit")]
            modules |= {alias.asname or alias.name.split(".")[0] for alias in named}
    for node in ast.walk(source):
        reached = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if reached and node.value.id in modules and is_private(node.attr):
            result.add(f"{node.value.id}.{node.attr}")
        path = node.value if isinstance(node, ast.Constant) else None
        if isinstance(path, str) and re.fullmatch(r"attnlimit(\.\w+)*\._[a-z]\w*", path):
            result.add(path)
    return result


def calls(source: ast.Module) -> set[str]:
    results = [node.func for node in ast.walk(source) if isinstance(node, ast.Call)]
    return {function.id for function in results if isinstance(function, ast.Name)}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_a_module_is_a_topic():
    assert 100 <= median(MODULES.values()) <= 300
    assert {name: lines for name, lines in MODULES.items() if lines > 600} == {}


def test_no_module_is_for_everything():
    excluded = {"utils.py", "util.py", "helpers.py", "common.py", "misc.py", "tools.py"}
    assert [name for name in LENGTHS if name.rpartition("/")[2] in excluded] == []


def test_every_module_has_a_docstring():
    silent = [name for name in LENGTHS if not ast.get_docstring(tree(PACKAGE / name))]
    assert silent == []


def test_only_the_command_line_prints():
    outside = [name for name in LENGTHS if not name.startswith("cli/")]
    called = {name: calls(tree(PACKAGE / name)) for name in outside}
    assert [name for name, names in called.items() if "print" in names] == []


def test_tests_use_what_is_public():
    results = {path.name: private_names(tree(path)) for path in TESTS.rglob("*.py")}
    assert {name: names for name, names in results.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "from attnlimit.runs.resume import _died",
        "from attnlimit.runs import resume\nresume._died()",
        "import attnlimit as al\nal._x",
        "patch.setattr('attnlimit.runs.resume._died', None)",
    ],
)
def test_the_search_for_private_names_finds_them(source):
    assert private_names(ast.parse(source))


def test_no_registry_is_named():
    kept = [ROOT / name for name in ("Makefile", "pyproject.toml", "constraints.txt", "README.md")]
    kept += [*PACKAGE.rglob("*.py"), *(ROOT / "docs").rglob("*.md")]
    results = [
        path.name for path in kept if path.exists() and HOSTS.search(path.read_text("utf-8"))
    ]
    assert results == []
