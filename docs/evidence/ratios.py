"""How fast is it? The suites of the benchmarks, as they were timed, misses and all."""

from __future__ import annotations

import pandas as pd

from evidence.blocks import MAKERS, Maker
from evidence.cells import numbers
from evidence.studies import BENCHMARKS, Study


def _ratios(suite: Study) -> pd.DataFrame:
    rows = suite.table
    return pd.DataFrame(
        {
            "what": rows["what"].str.replace("|", r"\|"),
            "measured": pd.Series(numbers(rows["measured"])) + " " + rows["unit"],
            "baseline": pd.Series(numbers(rows["baseline"])) + " " + rows["unit"],
            "ratio": numbers(rows["ratio"]),
            "target": rows["target"].map("{:.3g}".format),
            "met": rows["met"].map({True: "yes", False: "**no**"}),
        }
    )


for _suite in ("startup", "theory", "montecarlo", "models", "output", "sparse", "scale"):
    MAKERS[f"{_suite}-ratios"] = Maker("table", _ratios, (BENCHMARKS + _suite,))
