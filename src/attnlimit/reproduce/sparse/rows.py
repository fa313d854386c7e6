"""Rows that every sparse experiment shares: a prediction and the measurement beside it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.reproduce.experiment import Config
from attnlimit.sparse.train.simulate import Measured


def seed_number(seed: np.random.SeedSequence) -> int:
    """Return a whole number that stands for `seed`."""
    return int(seed.generate_state(1, np.uint64)[0])


def paired(
    labels: dict[str, Any], predicted: dict[str, float], measured: Measured | None
) -> pd.DataFrame:
    """One row for each predicted quantity; measured and stderr are NaN where nothing was drawn."""
    rows = [
        {
            **labels,
            "quantity": name,
            "predicted": float(value),
            "measured": measured.mean[name] if measured else np.nan,
            "stderr": measured.stderr[name] if measured else np.nan,
        }
        for name, value in predicted.items()
    ]
    return pd.DataFrame(rows)


def with_gap(frame: pd.DataFrame) -> pd.DataFrame:
    """Add z, the difference in standard errors."""
    gap = frame["measured"] - frame["predicted"]
    return frame.assign(z=gap / frame["stderr"].where(frame["stderr"] > 0))


def keep(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    """Combine shards by stacking them."""
    return rows.drop(columns="shard").reset_index(drop=True)


def where(frame: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """Rows of `frame` whose columns have these values."""
    for column, value in values.items():
        frame = frame[frame[column] == value]
    return frame


def worst(frame: pd.DataFrame) -> str:
    """Say how far measurements are from predictions over the whole frame."""
    z = with_gap(frame.dropna(subset=["measured"]))["z"].dropna()
    return (
        f"{len(z)} comparisons: root mean square difference {np.sqrt((z**2).mean()):.2f} standard "
        f"errors, largest {z.abs().max():.1f}; {int((z.abs() > 3).sum())} beyond 3."
    )


def in_order(values: Iterable[Any]) -> list[Any]:
    """Return distinct values in their first order."""
    return list(dict.fromkeys(values))


def caption(text: str, panels: int = 2) -> str:
    """Break a caption into lines that fit under this many panels."""
    return "\n".join(textwrap.wrap(text, 62 * panels))
