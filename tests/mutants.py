"""Mutation testing: small changes of formulas, of which tests must notice nine in ten.

    make mutants                                                # 150 of all formulas
    python tests/mutants.py --packages sparse --sample 40
    python tests/mutants.py --replace theory/delta.py "2 * t" "t"   # one change of your own

Every test is traced once for the functions that it calls. A mutation is made in a copy of the
project, and tests that call the function changed run: those of its module, then all others, the
fastest first. One that fails or takes too long notices it. Traces are kept for each version of a
file of tests, results for each version of a module, so a run goes on where it stopped.
The list of survivors is written to `tests/mutants.md`, where reasons are added by hand.
"""

from __future__ import annotations

import argparse
import ast
import gc
import hashlib
import importlib
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import _lru_cache_wrapper, cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "mutants.md"
PACKAGES = ("theory", "samplers", "planning", "sparse", "simulate")
LEAST = 0.9
"""Fraction of mutations that tests must notice."""
SECONDS = 900
"""Processor time that the tests of a mutation, or of a file that is traced, may take."""
FURTHER = ("tests/test_audit.py", "tests/test_calibration.py", "tests/test_misuse.py")
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


def function_at(text: str, line: int) -> str:
    """Qualified name of the innermost function at a line, or "<module>"."""

    def within(node: ast.AST, name: str, path: tuple[str, ...]) -> str:
        for child in ast.iter_child_nodes(node):
            first, last = getattr(child, "lineno", line + 1), getattr(child, "end_lineno", 0) or 0
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                first = min([first, *(entry.lineno for entry in child.decorator_list)])
                if first <= line <= last:
                    function = isinstance(child, ast.FunctionDef)
                    below = (*path, child.name, *(["<locals>"] if function else []))
                    return within(child, ".".join((*path, child.name)) if function else name, below)
            elif first <= line <= last and (inner := within(child, name, path)) != name:
                return inner
        return name

    return within(ast.parse(text), "<module>", ())


class Calls:
    """Functions of the package that every test of a file calls, itself or by its fixtures."""

    def __init__(self, source: Path) -> None:
        self.root = f"{source}{os.sep}"
        self.now: set[CodeType] = set()
        self.fixtures: dict[str, set[CodeType]] = {}
        self.tests: dict[str, tuple[float, set[CodeType]]] = {}

    def _trace(self, frame: FrameType, event: str, arg: object) -> None:
        self.now.add(frame.f_code)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """Count what a fixture calls for every test that has it."""
        before, self.now = self.now, set()
        try:
            return (yield)
        finally:
            self.fixtures[fixturedef.argname] = self.now | self.fixtures.get(
                fixturedef.argname, set()
            )
            self.now = before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Trace a test, with nothing kept from the tests before it."""
        for entry in gc.get_objects():
            if isinstance(entry, _lru_cache_wrapper) and entry.__module__.startswith("attnlimit"):
                entry.cache_clear()
        self.now = set()
        sys.settrace(self._trace)
        threading.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            for name in getattr(item, "fixturenames", ()):
                self.now |= self.fixtures.get(name, set())
            seconds, _ = self.tests.pop(item.nodeid, (0.0, set()))
            if seconds:
                self.tests[item.nodeid] = seconds, self.now

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep tests that pass, with their seconds."""
        if report.when == "call" and report.passed:
            self.tests[report.nodeid] = report.duration, set()

    def rows(self) -> dict[str, list[Any]]:
        """Seconds and functions of every test: `theory/delta.py:delta_variance`."""
        return {
            test: [
                seconds,
                sorted(
                    f"{code.co_filename.removeprefix(self.root)}:{code.co_qualname}"
                    for code in called
                    if code.co_filename.startswith(self.root)
                ),
            ]
            for test, (seconds, called) in self.tests.items()
        }


class Chosen:
    """Runs some tests of the files collected, the fastest first, and writes what fails."""

    def __init__(self, tests: list[str], writing: int) -> None:
        self.place = {test: place for place, test in enumerate(tests)}
        self.writing = writing

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Select and sort."""
        items[:] = sorted(
            (item for item in items if item.nodeid in self.place),
            key=lambda item: self.place[item.nodeid],
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the report of a test."""
        if report.failed:
            os.write(self.writing, report.nodeid.encode())


class Copy:
    """A copy of the project, in which one module at a time is changed."""

    def __init__(self, place: Path, called: Path) -> None:
        os.environ["OMP_NUM_THREADS"] = "1"  # threads do not survive a fork
        for library in ("torch", "pandas", "scipy.stats", "sklearn.linear_model", "transformers"):
            importlib.import_module(library)
        self.place, self.source, self.called = place, place / "src" / "attnlimit", called
        left_out = shutil.ignore_patterns("__pycache__", "_build")
        for name in ("src", "tests", "studies", "docs", "examples", "benchmarks"):
            shutil.copytree(ROOT / name, place / name, ignore=left_out)
        shutil.copy(ROOT / "pyproject.toml", place)

    @cache  # noqa: B019
    def calls(self, file: str) -> dict[str, list[Any]]:
        """Functions that the tests of a file call: traced once for each version of it."""
        digest = hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:12]
        kept = self.called / f"{file.replace('/', '-')}-{digest}.json"
        if not kept.exists():
            calls = Calls(self.source)
            self.run([file], [calls], lambda: kept.write_text(json.dumps(calls.rows())))
        actual: dict[str, list[Any]] = json.loads(kept.read_text()) if kept.exists() else {}
        return actual

    def run(self, files: list[str], plugins: list[Any], then: Callable[[], object]) -> int:
        """Run tests in a process of their own: libraries are loaded already, the package is not."""
        child = os.fork()
        if not child:
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
            os.chdir(self.place)
            os.environ["PYTHONPATH"] = str(self.place / "src")
            sys.path.insert(0, str(self.place / "src"))
            words = ["-x"] if then is _nothing else []
            words += ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files]
            ended = pytest.main(words, plugins=plugins)
            then()
            os._exit(ended)
        try:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        except BaseException:
            os.kill(child, signal.SIGKILL)
            raise

    def notices(self, mutation: Mutation, text: str, files: list[str]) -> str:
        """Return what noticed a mutation: a test, the time limit, or nothing ("survived")."""
        name = function_at(text, mutation.line)
        wanted = f"{mutation.module}:" + ("" if name == "<module>" else f"{name}.")
        tests = {
            test: seconds
            for file in files
            for test, (seconds, called) in self.calls(file).items()
            if any(f"{entry}.".startswith(wanted) for entry in called)
        }
        if not tests:
            return "survived"
        order = sorted(tests, key=lambda test: tests[test])
        files = list(dict.fromkeys(test.partition("::")[0] for test in order))
        file = self.source / mutation.module
        file.write_text(mutation.applied(text), encoding="utf-8")
        reading, writing = os.pipe()
        ended = self.run(files, [Chosen(order, writing)], _nothing)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            failed = pipe.read()
        file.write_text(text, encoding="utf-8")
        if ended < 0:
            return "time limit"
        if ended == 0 or ended == pytest.ExitCode.NO_TESTS_COLLECTED:
            return "survived"
        return failed or "import"


def _nothing() -> None:
    """Do nothing after a run."""


def test_files(module: str) -> tuple[list[str], list[str]]:
    """Tests of a module, which are named like it or import from it, and all others."""
    folders = [ROOT / "tests" / package for package in PACKAGES]
    paths = sorted(file for folder in folders for file in folder.rglob("test_*.py"))
    files = [*(str(path.relative_to(ROOT)) for path in paths), *FURTHER]
    name = module.removesuffix(".py").replace("/", ".")
    named = f"/test_{name.rpartition('.')[2]}.py"
    own = [f for f in files if f.endswith(named) or f"attnlimit.{name} " in _text(f)]
    return own, [file for file in files if file not in own]


@cache
def _text(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def sample(source: Path, packages: list[str], size: int, seed: int) -> list[Mutation]:
    """Mutations drawn at random from all modules of some packages.

    A mutation's place in the draw is a hash of its own text, so that a change of one module leaves
    the mutations of the others.
    """
    drawn = {}
    for file in sorted(file for package in packages for file in (source / package).rglob("*.py")):
        module = str(file.relative_to(source))
        for m in mutations(module, file.read_text(encoding="utf-8")):
            place = hashlib.sha256(f"{seed} {module} {m.before} {m.after}".encode()).hexdigest()
            drawn.setdefault(place, m)
    return [drawn[place] for place in sorted(drawn)[:size]]


def replacement(source: Path, module: str, before: str, after: str) -> Mutation:
    """The change of a piece of text that occurs once."""
    text = (source / module).read_text(encoding="utf-8")
    if text.count(before) != 1:
        raise SystemExit(f"{module} has {text.count(before)} places with {before!r}; give one.")
    at = text.index(before)
    return Mutation(module, text[:at].count("\n") + 1, at, at + len(before), before, after)


def write_list(path: Path, chosen: list[Mutation], survivors: list[Mutation], how: str) -> None:
    """Write the survivors to a page, each with the reason that stands there already."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    reasons = dict(line[2:].split(" — ", 1) for line in lines if line.startswith("- "))
    names = [f"`{m.module}`: `{m.before}` → `{m.after}`".replace("\n", " ") for m in survivors]
    dead = len(chosen) - len(survivors)
    text = [
        "# Mutations that no test notices",
        "",
        f"`{how}`: tests notice {dead} of {len(chosen)} mutations. The others, and why:",
        "",
        *(f"- {name} — {reasons.get(name, '?')}" for name in names),
    ]
    path.write_text("\n".join(text) + "\n", encoding="utf-8")


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
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        called = given.out.parent / "called"
        called.mkdir(exist_ok=True)
        copy = Copy(Path(place), called)
        chosen = [replacement(copy.source, *entry) for entry in given.replace]
        chosen = chosen or sample(copy.source, given.packages, given.sample, given.seed)
        texts = {m.module: (copy.source / m.module).read_text(encoding="utf-8") for m in chosen}
        for near in (True, False):  # tests of the module itself first, of all mutations
            for number, mutation in enumerate(chosen, start=1):
                text = texts[mutation.module]
                key = mutation.key(text)
                if key in known:
                    continue
                own, others = test_files(mutation.module)
                noticed = copy.notices(mutation, text, own if near else others)
                if near and noticed == "survived":
                    continue
                known[key] = noticed
                row = {"key": key, "noticed": noticed, **asdict(mutation)}
                with given.out.open("a", encoding="utf-8") as kept:
                    kept.write(json.dumps(row) + "\n")
                print(f"{number:4d} {noticed}: {mutation}", flush=True)
        survivors = [m for m in chosen if known[m.key(texts[m.module])] == "survived"]
    dead = len(chosen) - len(survivors)
    if given.packages == PACKAGES and len(chosen) >= 150:
        write_list(LIST, chosen, survivors, f"make mutants, seed {given.seed}")
    print(f"\n{dead} of {len(chosen)} mutations noticed; survivors:", *survivors, sep="\n")
    raise SystemExit(dead < LEAST * len(chosen))


if __name__ == "__main__":
    main()
