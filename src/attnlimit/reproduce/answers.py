"""How often do thinned texts find what they look for? Means, and errors over documents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from attnlimit.picture import REFERENCE, Panel, Series
from attnlimit.reproduce.compare import plus_minus
from attnlimit.reproduce.estimates import means_again
from attnlimit.reproduce.panels import panel, points
from attnlimit.reproduce.rows import groups

QUESTIONS = {
    "article": "finds its article",
    "neighbour": "finds the passage beside it",
    "label": "finds its label",
}
KEYS, LOSS = "keys seen by a query, n", "1 - cosine of the embedding"

Parts = Iterable[tuple[str, pd.DataFrame]]


def asked_of(curves: pd.DataFrame) -> list[str]:
    """Return the questions that were asked."""
    return [key for key in QUESTIONS if key in curves]


def means_of(parts: Parts) -> pd.DataFrame:
    """Means over texts with errors by bootstrap over documents, a row for each part and n."""
    rows = []
    for name, some in parts:
        for n, part in groups(some, "n"):
            row: dict[str, Any] = {"part": name, "n": int(n)}
            for key in ("loss", *asked_of(some)):
                row[key], row[f"{key} stderr"] = mean_of(part, key)
            known = part.dropna(subset=["predicted_loss"])
            row["predicted_loss"] = known["predicted_loss"].mean()
            row["trusted"] = known["trusted"].mean()
            rows.append(row)
    return pd.DataFrame(rows)


def mean_of(rows: pd.DataFrame, column: str) -> tuple[float, float]:
    """Return the mean of a column and its standard error by bootstrap over documents."""
    values = rows[column].to_numpy(float)
    again = means_again(values, rows["document"].to_numpy())
    return float(values.mean()), float(again.std(ddof=1))


def dense_of(drawn: pd.DataFrame, question: str) -> tuple[float, float]:
    """Return how often texts find it with all keys, and the standard error."""
    return mean_of(drawn.drop_duplicates("place"), f"dense {question}")


def told(means: pd.DataFrame) -> pd.DataFrame:
    """Write every mean with its standard error, in columns that say what was asked."""
    shown = means[["part", "n"]].copy()
    for key, name in (QUESTIONS | {"loss": "1 - cosine"}).items():
        if key in means:
            both = means[[key, f"{key} stderr"]].to_numpy(float)
            shown[name] = [plus_minus(*one) for one in both]
    return shown


def answers(
    title: str,
    means: pd.DataFrame,
    question: str,
    x: str = "n",
    beside: Iterable[Series] = (),
    legend: bool = True,
) -> Panel:
    """Draw the share of texts that find it, against n or the error of the embedding."""
    series = [
        points(part, x, question, f"{question} stderr", name if legend else None, name)
        for name, part in groups(means, "part")
    ]
    about = {"y_scale": "linear", "y_limits": (0.0, 1.0)}
    label = KEYS if x == "n" else LOSS
    return panel(title, [*beside, *series], "share that finds it", label, **about)


def dense_line(drawn: pd.DataFrame, question: str, n: list[int]) -> Series:
    """Draw how often texts find it with all keys."""
    level, _ = dense_of(drawn, question)
    return Series(n, [level] * len(n), "dotted", "all keys", REFERENCE)
