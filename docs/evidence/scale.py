"""What a head's budget costs at growing contexts, and how many queries a sample of them covers."""

from __future__ import annotations

import pandas as pd

from evidence.blocks import table
from evidence.cells import measured, number, numbers, once, percent
from evidence.studies import Study

STUDY = "python studies/scale_sizes.py"


@table(STUDY)
def cost_by_context(study: Study) -> pd.DataFrame:
    """Core-seconds and megabytes of a budget, predicted and measured."""
    rows = study.tables["sizes"]
    first = rows.groupby(["layer", "head"])["core_seconds"].transform("first")
    return pd.DataFrame(
        {
            "tokens": once(rows["tokens"]),
            "layer, head": rows["layer"].astype(str) + ", " + rows["head"].astype(str),
            "core-seconds": numbers(rows["core_seconds"], 2),
            "over those at the first": numbers(rows["core_seconds"] / first, 2),
            "predicted / measured": numbers(
                rows["predicted_core_seconds"] / rows["core_seconds"], 2
            ),
            "MB": numbers(rows["megabytes"], 2),
            "predicted MB": numbers(rows["predicted_megabytes"], 2),
        }
    )


@table(STUDY)
def queries_covered(study: Study) -> pd.DataFrame:
    """The share of all queries that a budget made for a sample of them covers."""
    rows = study.tables["queries"]
    shares = [
        f"{measured(100 * one.covered, 100 * one.stderr)} %" for one in rows.itertuples(index=False)
    ]
    return pd.DataFrame(
        {
            "heads": rows["heads"],
            "queries asked": rows["asked"].astype(str) + " of " + rows["of"].astype(str),
            "covered, mean over heads": shares,
            "predicted": [percent(one) for one in rows["predicted"]],
            "deviation over heads": [f"{number(100 * one, 2)} %" for one in rows["spread"]],
            "predicted ": [f"{number(100 * one, 2)} %" for one in rows["predicted_spread"]],
        }
    )
