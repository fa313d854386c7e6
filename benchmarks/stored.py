"""Captures in files: peak memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from attnlimit import budget
from attnlimit.models import capture, load, open_capture, wikipedia
from attnlimit.models.loading import BUNDLED, load_once
from attnlimit.models.texts import read_passages
from benchmarks.row import Row, fresh, peak_megabytes

MODEL = "smollm2"
TOKENS, LONG = 1024, 4096


def stored_rows() -> list[Row]:
    """Return the memory of processes that read and write a stored capture of SmolLM2."""
    if BUNDLED[MODEL].path is None:
        return []
    with tempfile.TemporaryDirectory() as place:
        small, large = Path(place) / "small", Path(place) / "large"
        loaded = load_once(MODEL)
        ids = list(read_passages(loaded, ["wikipedia:Anarchism"], TOKENS, 1)[0].ids)
        capture(loaded, ids, layers=[0], folder=small)
        capture(loaded, ids, folder=large)
        few, many = (_told("budget_one", str(folder)) for folder in (small, large))
        dense, written = _told("pass_once"), _told("capture_long", str(Path(place) / "long"))
    worker = "peak memory of a process that reads one head, a store of 30 layers against one of 1"
    taken = f"peak memory of a capture to files at {LONG} tokens, against the dense pass"
    return [
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
    (result,) = fresh(f"from benchmarks.stored import {function}; {function}(*{given!r})")
    return result
