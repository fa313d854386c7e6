"""Trace the files that two calls pass, and write them as tables for docs/design.md.

    python docs/walk.py            # writes docs/tables/walk-predict.md and walk-plan.md

A file counts when one of its functions runs for the call; what runs while modules are imported does
not. Modules beside the packages, which every package may use (CONTRIBUTING.md), are named below a
table and not counted.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import attnlimit

PACKAGE = Path(attnlimit.__file__).parent
ROOT = Path(__file__).parents[1]
TABLES = Path(__file__).parent / "tables"
PLAN = ["plan", "--model", "smollm2", "--tokens", "64", "--parts", "1", "--kl", "0.01"]


class Step(NamedTuple):
    """The first call into a file."""

    file: str  # below the package's folder
    function: str
    caller: str | None  # file of the package that made the call


class Walk(NamedTuple):
    """Files that a call passed, in order, and calls from a package to a later one."""

    steps: list[Step]
    shared: list[str]
    backwards: set[tuple[str, str]]

    def table(self) -> str:
        """Table of the files, each below and to the right of the one that called it first."""
        lines = ["| | file | first call |", "| --- | --- | --- |"]

        def write(caller: str | None, depth: int) -> None:
            for number, step in enumerate(self.steps, start=1):
                if step.caller == caller:
                    indent = "\u2003" * depth
                    lines.append(f"| {number} | {indent}`{step.file}` | `{step.function}` |")
                    write(step.file, depth + 1)

        write(None, 0)
        shared = ", ".join(f"`{file}`" for file in self.shared)
        return "\n".join(
            [*lines, "", f"*`python docs/walk.py`.* Shared, not counted: {shared}.", ""]
        )


def order() -> list[set[str]]:
    """Packages in their order, the last first, as import-linter holds it."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = content["tool"]["importlinter"]["contracts"][0]["layers"]
    return [{name.strip() for name in layer.replace(":", "|").split("|")} for layer in layers]


def walk(call: Callable[[], Any]) -> Walk:
    """Run a call, and return the files of the package that it passed."""
    layers = order()
    place = {name: rank for rank, layer in enumerate(layers) for name in layer}
    first: dict[str, Step] = {}
    pairs: set[tuple[str, str]] = set()
    root = f"{PACKAGE}/"

    def caller_of(frame: FrameType | None) -> str | None:
        while frame is not None and not frame.f_code.co_filename.startswith(root):
            frame = frame.f_back
        return None if frame is None else frame.f_code.co_filename.removeprefix(root)

    def imports(frame: FrameType | None) -> bool:
        while frame is not None:
            code = frame.f_code
            if code.co_name == "<module>" and code.co_filename.startswith(root):
                return True
            frame = frame.f_back
        return False

    def observe(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(root):
            return
        file, caller = frame.f_code.co_filename.removeprefix(root), caller_of(frame.f_back)
        if caller == file or (file in first and caller is not None and (caller, file) in pairs):
            return
        if imports(frame):
            return
        first.setdefault(file, Step(file, frame.f_code.co_qualname, caller))
        if caller is not None:
            pairs.add((caller, file))

    sys.setprofile(observe)
    try:
        call()
    finally:
        sys.setprofile(None)

    def package(file: str) -> str:
        return file.partition("/")[0].removesuffix(".py")

    steps = [step for file, step in first.items() if "/" in file]
    counted = {step.file for step in steps}
    backwards = {
        (caller, file)
        for caller, file in pairs
        if {caller, file} <= counted and place[package(caller)] > place[package(file)]
    }
    shared = sorted(file for file in first if file not in counted)
    return Walk(steps, shared, backwards)


def predict() -> Walk:
    """The walk of `al.predict(head, Gaussian, "mean", n)`."""
    import numpy as np

    import attnlimit as al

    head, tokens = al.Head(0.1 * np.eye(20)), al.Gaussian(dim=20)
    return walk(lambda: al.predict(head, tokens, "mean", [100, 200]))


def plan(arguments: list[str] = PLAN) -> Walk:
    """The walk of `attnlimit plan --kl`."""
    from attnlimit.cli.main import main

    def run() -> None:
        try:
            main(arguments)
        except SystemExit as stop:
            if stop.code:
                raise

    return walk(run)


if __name__ == "__main__":
    for name, made in {"predict": predict(), "plan": plan()}.items():
        (TABLES / f"walk-{name}.md").write_text(made.table(), encoding="utf-8")
        print(f"{name}: {len(made.steps)} files")
        print(*sorted(made.backwards), sep="\n")
