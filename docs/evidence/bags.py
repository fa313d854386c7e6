"""Plans for bags, and what training then gave: Gaussian bags, digits, real sets, documents."""

from __future__ import annotations

import pandas as pd

from attnlimit.reproduce.sparse.benchmarks import ENOUGH, holds
from evidence.blocks import table, value
from evidence.cells import interval, measured, number, once, pairs
from evidence.runs import Run

DOCUMENTS = "sparse-documents --paper"


def _forecasts(rows: pd.DataFrame) -> list[str]:
    return [interval(*one) for one in rows[["predicted", "low", "high"]].to_numpy(float)]


def _by_pooling(rows: pd.DataFrame, poolings: tuple[str, ...]) -> dict[str, list[str]]:
    """Forecast and measurement for some poolings, in the order of the other columns."""
    columns = {}
    for pooling in poolings:
        of_it = rows[rows["pooling"] == pooling]
        columns[pooling] = _forecasts(of_it)
        columns[f"{pooling}, trained"] = pairs(of_it)
    return columns


def _inside(rows: pd.DataFrame) -> str:
    held = rows[(rows["low"] <= rows["measured"]) & (rows["measured"] <= rows["high"])]
    return f"{len(held)} of {len(rows)}"


@table("sparse-gaussian --paper")
def gaussian_bags(run: Run) -> pd.DataFrame:
    """Bags of the theory's own kind."""
    rows = run.curves
    bags = rows[rows["pooling"] == "attention"]["bags"]
    return pd.DataFrame(
        {"bags": list(bags), **_by_pooling(rows, ("mean pooling", "attention", "joint attention"))}
    )


@value("sparse-gaussian --paper")
def gaussian_bags_inside(run: Run) -> str:
    """How many errors are inside their intervals."""
    return _inside(run.curves)


@table("sparse-digits --paper")
def digit_bags(run: Run) -> pd.DataFrame:
    """Bags of handwritten digits, with what the theory alone says of attention."""
    rows = run.curves[run.curves["bags"].isin([50, 200, 1600])]
    one = rows[rows["pooling"] == "attention"]
    return pd.DataFrame(
        {
            "digit": once(one["digit"]),
            "bags": list(one["bags"]),
            **_by_pooling(rows, ("mean pooling", "attention", "joint attention")),
            "theory alone, attention": [number(each, 2) for each in one["theory_alone"]],
        }
    )


@value("sparse-digits --paper")
def digit_bags_ratio(run: Run) -> str:
    """How far errors are from the middle of their forecasts."""
    low, high = (run.curves["measured"] / run.curves["predicted"]).quantile([0.05, 0.95])
    return f"{low:.2f} to {high:.2f}"


@value("sparse-digits --paper")
def digit_bags_theory(run: Run) -> str:
    """By how much the instances alone promise too much of attention, at worst."""
    rows = run.curves[run.curves["pooling"] == "attention"]
    return number(float((rows["measured"] / rows["theory_alone"]).max()), 2)


@table("sparse-benchmarks", says="recommended pooling|^Over all")
def real_bags(run: Run) -> pd.DataFrame:
    """The recommended pooling of each set."""
    rows = run.table
    return pd.DataFrame(
        {
            "set": rows["set"],
            "bags": rows["bags"],
            "pilot": rows["pilot"],
            "trained on": rows["trained_on"],
            "recommended": rows["pooling"],
            "predicted (90 %)": _forecasts(rows),
            "measured": pairs(rows),
            "worse than the best by": [
                f"+{measured(*each)}" if each[0] > 0 else "0"
                for each in rows[["excess", "excess_stderr"]].to_numpy(float)
            ],
            "holds": rows["holds"].map({True: "yes", False: "no"}),
        }
    )


OTHER_CUTS = (
    "sparse-benchmarks --set "
    '\'sets=["musk1", "musk2", "elephant", "protein", "birds", "digits", "documents"]\' '
    "--set cuts=5 --seed 1"
)


@table("sparse-benchmarks --paper", OTHER_CUTS, says="What is recommended")
def real_bags_other_cuts(*runs: Run) -> pd.DataFrame:
    """How plans fared when the same sets were cut otherwise; sets of at least 90 bags."""
    rows = []
    for run in runs:
        every = run.curves[(run.curves["tested_on"] == "rest") & (run.curves["bags"] >= ENOUGH)]
        chosen = every[every["recommended"]]
        worse = chosen[chosen["excess"] > 2 * chosen["excess_stderr"]]
        named = [
            f"{one.set}: {one.pooling}, +{measured(one.excess, one.excess_stderr)}"
            for one in worse.itertuples()
        ]
        rows.append(
            {
                "cuts": f"{run.config['cuts']}, seed {run.config['seed']}",
                "plans": len(chosen),
                "recommended pooling errs as predicted": int(holds(chosen).sum()),
                "worse than the best by two standard errors": "; ".join(named) or "none",
                "errors of all poolings inside their 90 % intervals": _inside(every),
            }
        )
    return pd.DataFrame(rows)


@table(DOCUMENTS)
def document_bags(run: Run) -> pd.DataFrame:
    """Bags of sentences, tested on new sentences and on articles never seen."""
    rows = run.curves[run.curves["bags"].isin([50, 200, 1600])]
    same, others = (rows[rows["test"] == kind] for kind in ("unseen sentences", "unseen articles"))
    one = same[same["pooling"] == "attention"]
    columns: dict[str, list[object]] = {
        "article": list(once(one["article"])),
        "bags": list(one["bags"]),
    }
    for pooling in ("attention", "joint attention"):
        columns[pooling] = list(_forecasts(same[same["pooling"] == pooling]))
        columns[f"{pooling}, same articles"] = list(pairs(same[same["pooling"] == pooling]))
        columns[f"{pooling}, others"] = list(pairs(others[others["pooling"] == pooling]))
    return pd.DataFrame(columns)


@value(DOCUMENTS)
def same_articles_inside(run: Run) -> str:
    """How many errors are inside their intervals on new sentences of the same articles."""
    return _inside(run.curves[run.curves["test"] == "unseen sentences"])


@value(DOCUMENTS)
def other_articles_inside(run: Run) -> str:
    """How many errors are inside their intervals with articles never seen."""
    return _inside(run.curves[run.curves["test"] == "unseen articles"])


@value(DOCUMENTS)
def other_articles_ratio(run: Run) -> str:
    """How far beyond the middle of its forecast an error is with articles never seen, at worst."""
    rows = run.curves[run.curves["test"] == "unseen articles"]
    return number(float((rows["measured"] / rows["predicted"]).max()), 2)
