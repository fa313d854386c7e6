"""How often 95 % intervals hold the truth, in every part of the study that counts it."""

from __future__ import annotations

import pandas as pd

from evidence.blocks import table, value
from evidence.cells import number, once
from evidence.studies import Study

PARTS = ("statistics", "many", "captured", "synthetic", "sparse", "models")
COMMANDS = [f"python studies/coverage.py {part}" for part in PARTS]
ROW = ["what", "statistic", "draws"]
ASKED = (0.92, 0.98)
SURE = 2.0


@table(*COMMANDS)
def coverage(*parts: Study) -> pd.DataFrame:
    """Every row that was counted; rates are those fitted to the values beside them."""
    rows = counted(*parts)
    values = rows[rows["of"] == "value"]
    rates = rows[rows["of"] == "rate"].set_index(ROW)
    shown = pd.DataFrame(
        {
            "tokens or experiment": once(values["what"]),
            "statistic": values["statistic"],
            "draws": values["draws"],
            "points": values["points"],
            "scatter / s.e.": [number(one) for one in values["ratio"]],
            "coverage": [share(one) for one in values.to_dict("records")],
        }
    )
    found = [tuple(one) for one in values[ROW].to_numpy(object)]
    fitted = [share(rates.loc[one].to_dict()) if one in rates.index else "" for one in found]
    return shown.assign(**{"of the fitted rate": fitted})


@value(*COMMANDS)
def coverage_outside(*parts: Study) -> str:
    """Rows that are not where they should be, by more than two of their own errors."""
    rows = counted(*parts)
    low, high = ASKED
    error = SURE * rows["coverage_stderr"]
    plainly = rows[(rows["coverage"] + error < low) | (rows["coverage"] - error > high)]
    within = rows["coverage"].between(low, high)
    names = [
        f"{one['what']}, {'rate of ' if one['of'] == 'rate' else ''}{one['statistic']} "
        f"({share(one)})"
        for one in plainly.to_dict("records")
    ]
    said = f"{int(within.sum())} of {len(rows)} rows are between {low:.0%} and {high:.0%}"
    return f"{said}; outside by more than two of their errors: {'; '.join(names) or 'none'}"


def counted(*parts: Study) -> pd.DataFrame:
    """The rows of all parts."""
    return pd.concat([one.table for one in parts], ignore_index=True)


def share(row: dict[str, float]) -> str:
    """A share of seeds, with its error."""
    return f"{100 * row['coverage']:.1f} ± {100 * row['coverage_stderr']:.1f} %"
