"""What does a capture in files bring? Two workers against one, and memory that no model fills."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from attnlimit import budget
from attnlimit.models import capture, load, open_capture, wikipedia
from attnlimit.models.load.bundled import BUNDLED
from attnlimit.reproduce.plan_run import plan_by_workers
from attnlimit.runs import InProcess, LocalProcesses
from attnlimit.survey import ask, ask_stored, write_captures
from benchmarks.row import Row, fresh, peak_megabytes, wall_seconds

MODEL = "smollm2"
WORKERS = 2
TOKENS, LONG = 1024, 4096


def stored_rows() -> list[Row]:
    """Return what workers that read a stored capture of SmolLM2 bring, and what they hold."""
    if BUNDLED[MODEL].path is None:
        return []
    with tempfile.TemporaryDirectory() as place:
        small, large = Path(place) / "small", Path(place) / "large"
        write_captures(ask(MODEL, tokens=TOKENS, parts=1, layers=[0]), small)
        write_captures(ask(MODEL, tokens=TOKENS, parts=1), large)
        few, many = (_told("budget_one", str(folder)) for folder in (small, large))
        asked = ask_stored(large)
        alone, spread = (
            wall_seconds(lambda who=who: plan_by_workers(asked, who))  # type: ignore[misc]
            for who in (InProcess(), LocalProcesses(WORKERS))
        )
        dense, written = _told("pass_once"), _told("capture_long", str(Path(place) / "long"))
    plan = "plan of all heads of SmolLM2 from a store, start-up included"
    worker = "peak memory of a worker, a store of 30 layers against one of 1"
    taken = f"peak memory of a capture to files at {LONG} tokens, against the dense pass"
    return [
        Row(f"{plan}: {WORKERS} processes against one", spread, alone, 1.7),
        Row(worker, many, few, 1 / 1.1, "MB"),
        Row(taken, written, dense, 1 / 1.3, "MB"),
    ]


def budget_one(folder: str) -> None:
    """Budget one head of a stored capture and print this process's peak memory."""
    budget(open_capture(folder)[0, 0])
    print(peak_megabytes())


def pass_once(tokens: int = LONG) -> None:
    """Run SmolLM2 as it comes, once, and print this process's peak memory."""
    model = load(MODEL)
    batch = torch.tensor([model.ids(wikipedia()["Anarchism"].text, tokens)])
    with torch.no_grad():
        model.model.base_model(input_ids=batch, use_cache=False)
    print(peak_megabytes())


def capture_long(folder: str, tokens: int = LONG) -> None:
    """Capture SmolLM2 to files, and print this process's peak memory."""
    model = load(MODEL)
    capture(model, model.ids(wikipedia()["Anarchism"].text, tokens), folder=folder)
    print(peak_megabytes())


def _told(function: str, *given: str) -> float:
    (found,) = fresh(f"from benchmarks.stored import {function}; {function}(*{given!r})")
    return found
