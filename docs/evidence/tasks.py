"""Tasks on thinned attention: downstream, downstream-by-horizon."""

from __future__ import annotations

import pandas as pd

from attnlimit.reproduce.lookup import lookup
from evidence.blocks import table, value
from evidence.cells import number, once, restated, spaced
from evidence.runs import Run

RETRIEVAL = "downstream --paper"


@value(RETRIEVAL)
def passages_asked(run: Run) -> str:
    """How many passages there are, and how many ask."""
    task = lookup(run.config)
    return f"{len(task.ids)} passages of {run.config['tokens']} tokens, {len(task.asked)} that ask"


@table(RETRIEVAL, says=r"^\d+ texts|With all keys|^Predicted|^Beyond")
def passages_found(run: Run) -> pd.DataFrame:
    """What is found on n keys, and the error of the embedding."""
    rows = run.table
    return pd.DataFrame(
        {
            "keys": once(rows["scheme"]),
            "n": rows["n"],
            "finds its article": rows["finds its article"].map(restated),
            "finds the one beside it": rows["finds the passage beside it"].map(restated),
            "1 − cosine": rows["1 - cosine"].map(restated),
            "predicted": [number(one) for one in rows["predicted"]],
            "trusted": rows["trusted"].fillna("").replace("–", "").map(spaced),
        }
    )


@table("downstream-by-horizon --paper", says="^Rank|no longer")
def passages_found_by_horizon(run: Run) -> pd.DataFrame:
    """What is found when a third of the heads is thinned, by their horizon."""
    rows = run.table[run.table["by"] == "heads"]
    found = rows.pivot(index="tertile", columns="n", values="finds the passage beside it")
    order = list(rows["tertile"].unique())
    medians, *falls = run.result.remarks[:4]
    horizons = medians.split(": ")[1].rstrip(".").split(", ")
    columns = {"heads thinned": order, "median H": horizons}
    for n in (1, 4, 8, 32):
        columns[f"finds the one beside it, n = {n}"] = [
            restated(found.loc[one, n]) for one in order
        ]
    powers = [one.split("power ")[1] for one in falls]
    columns["1 − cosine falls as n to the"] = [restated(one.split(" from")[0]) for one in powers]
    columns["exact law of the heads"] = [one.rsplit("law ", 1)[1].rstrip(".") for one in powers]
    return pd.DataFrame(columns)
