"""Mutation testing: small changes of formulas, of which tests must notice nine in ten.

    make mutants                                                # 150 of all formulas
    python tests/mutants.py --packages sparse --sample 40
    python tests/mutants.py --replace theory/delta.py "2 * t" "t"   # one change of your own

A mutation is made in a copy of the project. The tests of its module run first (`tests/a/test_b.py`
for `a/b.py`), then all of its package; a test that fails or takes too long notices it. Results are
kept by the module's text, so a run goes on where it stopped. `tests/mutants.md` has survivors.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("theory", "samplers", "planning", "sparse", "simulate")
LEAST = 0.9
"""Fraction of mutations that tests must notice."""
SECONDS = 900
"""Processor time that the tests of a folder may take."""
FURTHER = {"theory": ("tests/test_audit.py",), "planning": ("tests/test_calibration.py",)}
"""Tests outside a package's folder that hold its formulas."""
SHOWING = ("panel", "headline", "to_frame", "name", "__str__", "__repr__", "curves")
LEFT_OUT = {*SHOWING, "longest", "plain_start", "_continue_in_ridge"}
"""Functions that show results, or choose where a solver starts and its longest step."""
LIMITS = re.compile("BLOCK|MOST|LARGE|BATCH|CACHE|STEP|DRAWS|GRID|NODES|POINTS|REPLI|SEED|TOL")
"""Constants and arguments of memory and effort, which change results within their errors."""
TEXT = (ast.Raise, ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom)
OPTIONS = {"axis", "dim", "ndim", "strict", "keepdims", "maxsize", "dtype", "name", "smallest"}
SWAPPED: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Lt: ast.Gt, ast.LtE: ast.Gt, ast.Gt: ast.Lt, ast.GtE: ast.Lt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
EDGES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}  # of whole numbers
NAMES = {
    "minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min", "amax": "amin",
    "expm1": "exp", "log1p": "log", "sum": "mean", "mean": "sum", "floor": "ceil", "ceil": "floor",
    "argmax": "argmin", "argmin": "argmax", "any": "all", "all": "any", "sin": "cos", "cos": "sin",
}  # fmt: skip


@dataclass(frozen=True)
class Mutation:
    """A piece of a module's text and what stands there instead."""

    module: str
    line: int
    start: int
    end: int
    before: str
    after: str

    def applied(self, text: str) -> str:
        """Return the module's text with the change."""
        return text[: self.start] + self.after + text[self.end :]

    def key(self, text: str) -> str:
        """Name of the change of this version of the module."""
        return hashlib.sha256(f"{text} {self.start} {self}".encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.before}  ->  {self.after}"


def formulas(node: ast.AST) -> Iterator[ast.AST]:
    """Parts of a module that compute: no text, no errors, no types, nothing that only shows."""
    left_out = [getattr(node, name, None) for name in ("annotation", "returns")]
    left_out += getattr(node, "decorator_list", [])
    if isinstance(node, ast.arguments):
        positional = zip(reversed(node.args), reversed(node.defaults), strict=False)
        pairs = [*positional, *zip(node.kwonlyargs, node.kw_defaults, strict=True)]
        left_out += [value for entry, value in pairs if LIMITS.search(entry.arg.upper())]
    for child in ast.iter_child_nodes(node):
        shown = isinstance(child, ast.FunctionDef) and child.name in LEFT_OUT
        option = isinstance(child, ast.keyword) and child.arg in OPTIONS
        limit = isinstance(node, ast.Module) and isinstance(child, (ast.Assign, ast.AnnAssign))
        limit = limit and LIMITS.search(ast.unparse(child)) is not None
        if not (isinstance(child, TEXT) or child in left_out or shown or option or limit):
            yield child
            yield from formulas(child)


def changes(node: ast.AST) -> Iterator[str]:
    """Texts that may stand in place of an expression."""
    if isinstance(node, ast.BinOp):
        left, right = ast.unparse(node.left), ast.unparse(node.right)
        guards = re.search(r"\b[\d.]+e-\d+$", right)  # against a division by zero
        if type(node.op) in SWAPPED and not guards:
            yield ast.unparse(ast.BinOp(node.left, SWAPPED[type(node.op)](), node.right))
            yield from (left, right)[: 2 if isinstance(node.op, (ast.Add, ast.Mult)) else 1]
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
        sides = [node.left, *node.comparators]
        whole = any(re.fullmatch(r"-?\d+|len\(.*\)|n|k|size", ast.unparse(side)) for side in sides)
        kind = (EDGES if whole else SWAPPED).get(type(node.ops[0]), SWAPPED[type(node.ops[0])])
        yield ast.unparse(ast.Compare(node.left, [kind(), *node.ops[1:]], node.comparators))
    elif isinstance(node, ast.BoolOp):
        yield ast.unparse(ast.BoolOp(SWAPPED[type(node.op)](), node.values))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
        yield ast.unparse(node.operand)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        if 1e-3 <= abs(node.value) <= 1e6 or node.value == 0:
            yield str(node.value + 1 if type(node.value) is int else node.value / 2 or 1.0)
    elif isinstance(node, ast.Call):
        called = getattr(node.func, "attr", getattr(node.func, "id", None))
        if called in NAMES:
            yield ast.unparse(node).replace(f"{called}(", f"{NAMES[called]}(", 1)
        if called in ("sqrt", "square", "abs", "log", "exp") and len(node.args) == 1:
            yield ast.unparse(node.args[0])


def mutations(module: str, text: str) -> list[Mutation]:
    """All mutations of a module's text."""
    begins = [0]
    for line in text.encode().splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    data, actual = text.encode(), []
    for node in (part for part in formulas(ast.parse(text)) if isinstance(part, ast.expr)):
        first = begins[node.lineno - 1] + node.col_offset
        last = begins[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        start, end = len(data[:first].decode()), len(data[:last].decode())
        place = module, node.lineno, start, end, text[start:end]
        actual += [Mutation(*place, f"({after})") for after in changes(node)]
    return actual


@cache
def _test_files() -> dict[str, str]:
    """Text of every file of tests, by its path."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}


def tests_of(module: str) -> list[str]:
    """Tests of a module: its own, those that import it, and then its package's."""
    *folders, name = Path(module).with_suffix("").parts
    near = ["/".join(["tests", *folders[:depth]]) for depth in range(len(folders), -1, -1)]
    own = [f"{folder}/test_{name}.py" for folder in near]
    dotted = ".".join(["attnlimit", *folders, name])
    own += [path for path, text in _test_files().items() if f"{dotted} " in text]
    steps = [*dict.fromkeys(own), *near[:-1], *FURTHER.get(module.split("/")[0], ())]
    return [path for path in steps if (ROOT / path).exists()]


class Copy:
    """A copy of the project, in which one module at a time is changed."""

    def __init__(self, place: Path) -> None:
        os.environ["OMP_NUM_THREADS"] = "1"  # threads do not survive a fork
        for library in ("torch", "pandas", "scipy.stats", "sklearn.linear_model", "transformers"):
            importlib.import_module(library)
        self.place, self.source = place, place / "src" / "attnlimit"
        self.sound: dict[str, bool] = {}
        left_out = shutil.ignore_patterns("__pycache__", "_build")
        for name in ("src", "tests", "studies", "docs", "examples", "benchmarks"):
            shutil.copytree(ROOT / name, place / name, ignore=left_out)
        shutil.copy(ROOT / "pyproject.toml", place)

    def run(self, tests: str) -> str:
        """Name of the first test that fails, "time limit", or nothing."""
        reading, writing = os.pipe()
        child = os.fork()  # libraries are loaded already, the package is not
        if not child:
            self._test(tests, writing)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            failed = pipe.read()
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return "time limit" if ended < 0 else failed or ("collection" if ended else "")

    def _test(self, tests: str, writing: int) -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        os.chdir(self.place)
        os.environ["PYTHONPATH"] = str(self.place / "src")
        sys.path.insert(0, str(self.place / "src"))
        words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", tests]
        os._exit(pytest.main(words, plugins=[Failure(writing)]))

    def notices(self, mutation: Mutation, text: str, farther: bool = True) -> str:
        """Return what noticed a mutation: a test, the time limit, or nothing ("survived")."""
        file = self.source / mutation.module
        for tests in tests_of(mutation.module):
            if not (farther or tests.endswith(".py")):
                break
            file.write_text(mutation.applied(text), encoding="utf-8")
            failed = self.run(tests)
            file.write_text(text, encoding="utf-8")
            if failed and "::" in failed and failed not in self.sound:
                self.sound[failed] = not self.run(failed)
                if not self.sound[failed]:
                    print(f"     {failed} fails without a mutation", flush=True)
            if failed and self.sound.get(failed, True):
                return failed
        return "survived"


class Failure:
    """Writes the name of a test that fails to a pipe."""

    def __init__(self, writing: int) -> None:
        self.writing = writing

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the report of a test."""
        if report.failed:
            os.write(self.writing, report.nodeid.encode())


def sample(source: Path, packages: list[str], size: int, seed: int) -> list[Mutation]:
    """Mutations drawn at random from all modules of some packages."""
    files = sorted(file for package in packages for file in (source / package).rglob("*.py"))
    named = [(str(file.relative_to(source)), file.read_text(encoding="utf-8")) for file in files]
    every = [mutation for module, text in named for mutation in mutations(module, text)]
    return random.Random(seed).sample(every, min(size, len(every)))


def replacement(source: Path, module: str, before: str, after: str) -> Mutation:
    """The change of a piece of text that occurs once."""
    text = (source / module).read_text(encoding="utf-8")
    if text.count(before) != 1:
        raise SystemExit(f"{module} has {text.count(before)} places with {before!r}; give one.")
    at = text.index(before)
    return Mutation(module, text[:at].count("\n") + 1, at, at + len(before), before, after)


def main() -> None:
    """Sample mutations, run their tests, and list the survivors."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--packages", nargs="+", default=PACKAGES)
    parser.add_argument("--sample", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "mutants.jsonl")
    parser.add_argument("--again", action="store_true", help="run survivors again")
    parser.add_argument("--replace", nargs=3, action="append", default=[])
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the copy is removed
    given.out.parent.mkdir(parents=True, exist_ok=True)
    lines = given.out.read_text(encoding="utf-8").splitlines() if given.out.exists() else []
    rows, forgotten = map(json.loads, lines), "survived" if given.again else None
    known = {row["key"]: row["noticed"] for row in rows if row["noticed"] != forgotten}
    survivors = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        copy = Copy(Path(place))
        chosen = [replacement(copy.source, *entry) for entry in given.replace]
        chosen = chosen or sample(copy.source, given.packages, given.sample, given.seed)
        for number, mutation in enumerate(chosen, start=1):
            text = (copy.source / mutation.module).read_text(encoding="utf-8")
            key = mutation.key(text)
            if key not in known:
                known[key] = copy.notices(mutation, text)
                row = {"key": key, "noticed": known[key], **asdict(mutation)}
                with given.out.open("a", encoding="utf-8") as kept:
                    kept.write(json.dumps(row) + "\n")
            print(f"{number:4d} {known[key]}: {mutation}", flush=True)
            survivors += [mutation] if known[key] == "survived" else []
    noticed = len(chosen) - len(survivors)
    print(f"\n{noticed} of {len(chosen)} mutations noticed; survivors:", *survivors, sep="\n")
    raise SystemExit(noticed < LEAST * len(chosen))


if __name__ == "__main__":
    main()
