"""How often 95 % intervals hold the truth, in every part of the study that counts it."""

from __future__ import annotations

import pandas as pd

from evidence.blocks import table, value
from evidence.cells import number, once
from evidence.studies import Study

PARTS = ("statistics", "many", "captured", "synthetic", "sparse", "models", "outputs")
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
def coverage_within(*parts: Study) -> str:
    """How many rows are where they should be."""
    rows = counted(*parts)
    return f"{int(rows['coverage'].between(*ASKED).sum())} of {len(rows)}"


def counted(*parts: Study) -> pd.DataFrame:
    """The rows of all parts."""
    return pd.concat([one.table for one in parts], ignore_index=True)


def share(row: dict[str, float]) -> str:
    """A share of seeds, with its error; bold if it is outside by more than two of them."""
    value, error = row["coverage"], row["coverage_stderr"]
    low, high = ASKED[0] - SURE * error, ASKED[1] + SURE * error
    said = f"{100 * value:.1f} ± {100 * error:.1f} %"
    return said if low <= value <= high else f"**{said}**"
