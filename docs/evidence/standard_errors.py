"""Are stated standard errors honest? Their ratio to the scatter of many measurements."""

from __future__ import annotations

import pandas as pd

from evidence.blocks import table
from evidence.cells import measured, number, numbers, once
from evidence.studies import Study


@table("python studies/standard_errors.py")
def scatter_over_stated(study: Study) -> pd.DataFrame:
    """Measurements of 20 and of 100 draws, with controls and without."""
    rows = study.table

    def pairs(name: str) -> list[str]:
        return [measured(*both) for both in rows[[name, f"{name} stderr"]].to_numpy(float)]

    return pd.DataFrame(
        {
            "d, H": once(f"{one.d}, {number(one.H, 2)}" for one in rows.itertuples()),
            "statistic": rows["statistic"],
            "draws": rows["draws"],
            "scatter / mean s.e.": pairs("scatter"),
            "/ rms s.e.": numbers(rows["scatter over rms"]),
            "within 2 s.e.": pairs("within"),
            "plain: scatter / mean s.e.": pairs("plain scatter"),
            "plain: within 2 s.e.": pairs("plain within"),
            "variance left": numbers(rows["variance left"], 2),
        }
    )
