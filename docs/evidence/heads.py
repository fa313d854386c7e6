"""Single heads of real models: heads, longdoc, row-temperature."""

from __future__ import annotations

import pandas as pd

from evidence.blocks import table, value
from evidence.cells import number, numbers, once, percent
from evidence.runs import Run


@table("heads --paper", says="against measured|^Beyond")
def all_heads(run: Run) -> pd.DataFrame:
    """Predicted against measured over the 72 heads of MiniLM."""
    rows = run.table
    names = {"pointwise": "pointwise, exact law", "mean": "mean, two-query law"}
    columns = {
        "median error": "median |gap|",
        "worst error": "worst |gap|",
        "median noise of the measurement": "median noise",
        "worst delta error there": "worst delta there",
        "worst elsewhere": "worst delta elsewhere",
    }
    shares = {shown: [percent(one, 2) for one in rows[name]] for shown, name in columns.items()}
    shown = pd.DataFrame(
        {"statistic": once(rows["statistic"].map(names)), "n": rows["n"], **shares}
    )
    shown.insert(4, "worst head", rows["worst head"])
    shown.insert(6, "delta flagged reliable (in sample)", rows["delta reliable in"].fillna(""))
    return shown


@table("bert --paper", says="against measured|^Rate|^Rank|^Beyond")
def rates_by_layer(run: Run) -> pd.DataFrame:
    """Rates of the errors over n, medians over the heads of a layer."""
    rows = run.table
    return pd.DataFrame(
        {
            "layer": rows["layer"],
            "H, median head": rows["H, median head"].map("{:.2f}".format),
            **{name: rows[name].map("{:.3f}".format) for name in rows.columns[3:]},
        }
    )


@table("longdoc --paper", says="against measured|^Beyond")
def schemes_by_head(run: Run) -> pd.DataFrame:
    """The error of 256 keys by scheme, for three heads of some layers; the best in bold."""
    some = run.table["layer"].isin([0, 3, 12, 21, 27]) & run.table["head"].isin([0, 4, 8])
    rows = run.table[some].reset_index(drop=True)
    names = list(rows.columns[4:-1])
    shown = pd.DataFrame(
        {
            "layer, head": rows["layer"].astype(str) + ", " + rows["head"].astype(str),
            "score sd": rows["score_std"].map("{:.2f}".format),
            "weight on the first token": rows["first_token"].map("{:.2f}".format),
        }
    )
    for name in names:
        best = rows["best"] == name
        shown[name] = [
            f"**{number(one)}**" if bold else number(one)
            for one, bold in zip(rows[name], best, strict=True)
        ]
    return shown


@table("row-temperature --paper", says="critical value|against measured")
def what_ranks_heads(run: Run) -> pd.DataFrame:
    """Rank correlations over heads."""
    rows = run.table
    names = {
        "β over its critical value": "β/β_c",
        "β over that of crowds": "β/β_c, crowds of 4",
        "σ/√(2 log n)": "σ/√(2 log n), the rule of `al.regimes`",
    }
    first, *others, error = rows.columns
    shown = {name: [number(one, 2) for one in rows[name]] for name in others}
    return pd.DataFrame(
        {"diagnostic": rows[first].replace(names), **shown, error: numbers(rows[error], 1)}
    )


@value("longdoc --paper")
def best_schemes(run: Run) -> str:
    """Of how many heads each scheme is the best."""
    counts = run.table["best"].value_counts()
    (first, most), *others = counts.items()
    rest = ", ".join(f"{name} on {count}" for name, count in others)
    return f"{first} is the best scheme on {most} of {len(run.table)} heads, {rest}"
