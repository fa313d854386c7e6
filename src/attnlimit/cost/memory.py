"""Is memory what is predicted? Peaks of a fresh process, after each stage."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pandas as pd

from attnlimit.cost import counts
from attnlimit.cost.shape import NAMED

TOKENS = (1024, 2048)
QUERIES, DRAWS = 128, 4


def check_memory() -> pd.DataFrame:
    """Peak memory beyond a loaded SmolLM2, predicted beside measured."""
    rows = []
    for tokens in TOKENS:
        code = f"from attnlimit.cost.memory import print_peaks; print_peaks({tokens})"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        loaded, *measured = json.loads(done.stdout.splitlines()[-1])
        for (stage, predicted), peak in zip(_predicted(tokens), measured, strict=True):
            rows.append(
                {
                    "what": f"smollm2, {tokens} tokens",
                    "up to": stage,
                    "predicted GB": predicted / 1e9,
                    "measured GB": (peak - loaded) / 1e9,
                    "ratio": predicted / max(peak - loaded, 1),
                }
            )
    return pd.DataFrame(rows)


def _predicted(tokens: int) -> list[tuple[str, float]]:
    shape = NAMED["smollm2"]
    held = counts.capture_bytes(shape, tokens)
    peak = 0.0
    found = []
    for stage, work in (
        ("forward pass, captured", counts.forward(shape, tokens)),
        ("budgets", counts.schemes(QUERIES, tokens, shape.head_dim)),
        ("the referee's draws", counts.referee(tokens, shape.head_dim, DRAWS, causal=True)),
    ):
        peak = max(peak, work.bytes)
        found.append((stage, held + peak))
    return found


def print_peaks(tokens: int) -> None:
    """Print this process's peak bytes after loading SmolLM2, and after each stage of one head."""
    from attnlimit.budgets.head import head_budget
    from attnlimit.budgets.terms import Terms
    from attnlimit.cost.timing import one_thread, text_ids
    from attnlimit.models import capture, load, measure_capture

    with one_thread():
        model = load("smollm2")
        ids = text_ids(model)
        capture(model, ids[:64])  # what the libraries set up once
        peaks = [_peak()]
        captured = capture(model, ids[:tokens])
        peaks.append(_peak())
        head_budget(captured[9, 4], Terms(), queries=QUERIES)
        peaks.append(_peak())
        measure_capture(captured, "pointwise", counts.referee_sizes(tokens), DRAWS, layer=9, head=4)
        peaks.append(_peak())
    sys.stdout.write(json.dumps(peaks) + "\n")


def _peak() -> int:
    try:  # what getrusage says of a new process begins at the size of the one that started it
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
