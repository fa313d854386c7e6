"""No file on the disk can make this package run code: what would allow it is not in the source.

But for one: an object that a user names by the path of its file, in `registry.py`.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import attnlimit

SOURCES = sorted(Path(attnlimit.__file__).parent.rglob("*.py"))
MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal",
           "jsonpickle", "yaml"}  # fmt: skip
CALLS = {"eval", "exec", "compile", "__import__"}
METHODS = {"read_pickle", "to_pickle", "loads_pickle", "unpickle", "system", "popen",
           "exec_module", "load_module", "run_path", "run_module"}  # fmt: skip
ASKED_FOR = {"registry.py": ["exec", "compile"]}


def findings(source: str) -> list[str]:
    """What in a module could unpickle, evaluate, or hand a string to a shell."""
    rows = []
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        rows += [f"import {name}" for name in names if name.split(".")[0] in MODULES]
        if not isinstance(node, ast.Call):
            continue
        options = {word.arg: word.value for word in node.keywords}
        called = ast.unparse(node.func)
        last = called.rpartition(".")[2]
        if called in CALLS or last in METHODS:
            rows.append(called)
        if _is(options.get("shell"), True) or _is(options.get("allow_pickle"), True):
            rows.append(f"{called} with shell or allow_pickle")
        if called == "torch.load" and not _is(options.get("weights_only"), True):
            rows.append("torch.load without weights_only")
        if called in ("np.load", "numpy.load") and not _is(options.get("allow_pickle"), False):
            rows.append("np.load without allow_pickle=False")
        if "trust_remote_code" in options and not _is(options["trust_remote_code"], False):
            rows.append(f"{called} with trust_remote_code")
        if last == "from_pretrained" and not ({None, "trust_remote_code"} & set(options)):
            rows.append(f"{called} without trust_remote_code=False")
    return rows


def _is(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def test_nothing_unpickles_evaluates_or_calls_a_shell():
    root = Path(attnlimit.__file__).parent
    results = {
        path.relative_to(root).as_posix(): findings(path.read_text(encoding="utf-8"))
        for path in SOURCES
    }
    assert len(results) > 50
    assert {name: what for name, what in results.items() if what} == ASKED_FOR


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "import yaml",
        "import torch\ntorch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.load(path, weights_only=safe)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "pd.read_pickle(path)",
        "eval(text)",
        "exec(text)",
        "spec.loader.exec_module(module)",
        "runpy.run_path(path)",
        "subprocess.run(text, shell=True)",
        "os.system(text)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
        "AutoModel.from_pretrained(name)",
    ],
)
def test_the_search_finds_what_it_is_for(source):
    assert findings(source)
