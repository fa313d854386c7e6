"""How long does one unit of each stage take here? Fitted to timings, with what the fit misses."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from attnlimit.cost.counts import Work
from attnlimit.errors import BadInput

SCHEMA = "attnlimit.cost/1"
MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Timing:
    """Seconds that some work of a stage took."""

    stage: str
    work: Work
    seconds: float


@dataclass(frozen=True)
class Rates:
    """Core-seconds for each unit of each stage, fitted to timings of one machine.

    `error` is the root mean square of the relative errors of the fit, by stage, and `timings` how
    many it rests on.
    """

    seconds: dict[str, dict[str, float]]
    error: dict[str, float]
    timings: dict[str, int]
    machine: dict[str, str] = field(default_factory=dict)

    def of(self, stage: str, work: Work) -> float:
        """Core-seconds of some work."""
        known = self.seconds.get(stage)
        if known is None or not work.units.keys() <= known.keys():
            raise BadInput(
                f"The rates kept here do not know the stage {stage!r}; "
                "run `attnlimit cost --calibrate`."
            )
        return sum(known[name] * count for name, count in work.units.items())

    def to_frame(self) -> pd.DataFrame:
        """One row for each stage and unit."""
        return pd.DataFrame(
            [
                {
                    "stage": stage,
                    "unit": unit,
                    "nanoseconds": 1e9 * seconds,
                    "fit error %": 100 * self.error[stage],
                    "timings": self.timings[stage],
                }
                for stage, units in self.seconds.items()
                for unit, seconds in units.items()
            ]
        )

    def __str__(self) -> str:
        return self.to_frame().to_string(index=False, float_format=lambda v: f"{v:.4g}")

    def write(self, path: Path) -> Path:
        """Write the rates as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1) + "\n")
        return path

    @classmethod
    def read(cls, path: Path) -> Rates:
        """Read rates that `write` wrote; anything else is refused in a sentence."""
        try:
            if path.stat().st_size > MOST_BYTES:
                raise ValueError("it is too large")
            return _checked(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError) as error:
            raise BadInput(
                f"{path} holds no rates that can be used ({error}); "
                "run `attnlimit cost --calibrate`."
            ) from None


def _checked(content: Any) -> Rates:
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise ValueError(f"it does not say {SCHEMA}")
    parts: list[Any] = [content.get(name) for name in ("seconds", "error", "timings", "machine")]
    if not all(isinstance(part, dict) for part in parts):
        raise ValueError("a part is missing")
    seconds, error, timings, machine = parts
    if not all(isinstance(units, dict) for units in seconds.values()):
        raise ValueError("a stage has no units")
    if not seconds.keys() == error.keys() == timings.keys():
        raise ValueError("its parts name other stages")
    numbers = [value for units in seconds.values() for value in units.values()]
    numbers += [*error.values(), *timings.values()]
    if not all(_is_size(value) for value in numbers):
        raise ValueError("a rate is not a number")
    return Rates(seconds, error, timings, {str(key): str(said) for key, said in machine.items()})


def _is_size(value: Any) -> bool:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return plain and bool(np.isfinite(value)) and value >= 0


def fit_rates(timings: Iterable[Timing], machine: dict[str, str] | None = None) -> Rates:
    """Rates that are nowhere negative and miss the timings least, in relative terms."""
    stages: dict[str, list[Timing]] = {}
    for timing in timings:
        if not timing.seconds > 0:
            raise BadInput(
                f"A timing of {timing.stage} is {timing.seconds} s; it must be positive."
            )
        stages.setdefault(timing.stage, []).append(timing)
    seconds: dict[str, dict[str, float]] = {}
    error: dict[str, float] = {}
    for stage, rows in stages.items():
        seconds[stage], error[stage] = _fit_stage(rows)
    return Rates(seconds, error, {k: len(v) for k, v in stages.items()}, machine or {})


def _fit_stage(rows: list[Timing]) -> tuple[dict[str, float], float]:
    units = list(dict.fromkeys(name for row in rows for name in row.work.units))
    counts = np.array([[row.work.units.get(name, 0.0) for name in units] for row in rows])
    relative = counts / np.array([row.seconds for row in rows])[:, None]
    # Units differ by ten orders of magnitude: each column is scaled to one.
    size = np.maximum(relative.max(axis=0), 1e-300)
    found, _ = nnls(relative / size, np.ones(len(rows)))
    missed = relative @ (found / size) - 1
    return dict(zip(units, (found / size).tolist(), strict=True)), float(
        np.sqrt((missed**2).mean())
    )
