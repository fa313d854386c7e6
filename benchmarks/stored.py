"""Captures in files: two workers against one, and peak memory."""

from __future__ import annotations

import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from attnlimit import budget
from attnlimit.models import capture, capture_sensitivities, load, open_capture, wikipedia
from attnlimit.models.captures import StoredCaptures
from attnlimit.models.loading import BUNDLED, load_once
from attnlimit.models.texts import read_passages
from attnlimit.planning.calibration import CaptureCalibration, Mapper
from attnlimit.planning.planner import make_plans
from attnlimit.planning.target import NextToken
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
        loaded = load_once(MODEL)
        ids = list(read_passages(loaded, ["wikipedia:Anarchism"], TOKENS, 1)[0].ids)
        capture(loaded, ids, layers=[0], folder=small)
        capture_sensitivities(loaded, ids, large, probes=4)
        stored = StoredCaptures.at(large)
        few, many = (_told("budget_one", str(folder)) for folder in (small, large))
        with ProcessPoolExecutor(WORKERS) as pool:
            alone, spread = (
                wall_seconds(lambda how=how: _plan(stored, how))  # type: ignore[misc]
                for how in (map, pool.map)
            )
        dense, written = _told("pass_once"), _told("capture_long", str(Path(place) / "long"))
    plan = "plan of SmolLM2 from a store"
    worker = "peak memory of a worker, a store of 30 layers against one of 1"
    taken = f"peak memory of a capture to files at {LONG} tokens, against the dense pass"
    return [
        Row(f"{plan}: {WORKERS} processes against one", spread, alone, 1.7),
        Row(worker, many, few, 1 / 1.1, "MB"),
        Row(taken, written, dense, 1 / 1.3, "MB"),
    ]


def _plan(stored: StoredCaptures, mapper: Mapper) -> None:
    calibration = CaptureCalibration(stored.captures(), NextToken(0.01), mapper)
    make_plans(calibration, [NextToken(0.01)], complete=False)


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
