"""How often 95 % intervals hold the truth, by the parts of the study that counts it.

Rows of a part stay as they were where it was not run.
"""

from __future__ import annotations

import pandas as pd

from evidence.blocks import EVERY, table
from evidence.cells import number
from evidence.overview import stayed
from evidence.runs import Runs
from evidence.studies import Study

PARTS = (
    *("statistics", "many", "captured", "synthetic", "trained", "tested", "separable"),
    *("models", "outputs", "cuts"),
)
COMMANDS = {part: f"python studies/coverage.py {part}" for part in PARTS}
ROW = ["what", "statistic", "draws"]
ASKED = (0.92, 0.98)
SURE = 2.0


@table(EVERY, *COMMANDS.values())
def coverage(runs: Runs, before: pd.DataFrame) -> pd.DataFrame:
    """Every row that was counted; rates are those fitted to the values beside them."""
    lines = []
    for part, command in COMMANDS.items():
        one = runs.get(command)
        lines += shown(part, one.table) if isinstance(one, Study) else stayed(before, "part", part)
    return pd.DataFrame(lines)


def shown(part: str, rows: pd.DataFrame) -> list[dict[str, object]]:
    """The lines of a part."""
    rates = rows[rows["of"] == "rate"].set_index(ROW)
    return [
        {
            "part": part,
            "tokens or experiment": one["what"],
            "statistic": one["statistic"],
            "draws": one["draws"],
            "points": one["points"],
            "scatter / s.e.": number(one["ratio"]),
            "coverage": share(one),
            "of the fitted rate": share(rates.loc[place]) if place in rates.index else "",
        }
        for one in rows[rows["of"] == "value"].to_dict("records")
        for place in [tuple(one[name] for name in ROW)]
    ]


def share(row: pd.Series[float]) -> str:
    """A share of seeds, with its error; bold if it is outside by more than two of them."""
    found, error = row["coverage"], row["coverage_stderr"]
    low, high = ASKED[0] - SURE * error, ASKED[1] + SURE * error
    said = f"{100 * found:.1f} ± {100 * error:.1f} %"
    return said if low <= found <= high else f"**{said}**"
