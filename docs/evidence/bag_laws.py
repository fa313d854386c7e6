"""Laws of bags: learning_law.py, bag_kinds.py, bag_shapes.py and finite_dimension.py in studies."""

from __future__ import annotations

import numpy as np
import pandas as pd

from evidence.blocks import table, value
from evidence.cells import number, numbers, once, pairs, percent, setting
from evidence.studies import Study

LAW = "python studies/learning_law.py"
KINDS = "python studies/bag_kinds.py"
SHAPES = "python studies/bag_shapes.py"
FINITE = "python studies/finite_dimension.py"


def _span(ratio: pd.Series) -> str:
    low, high = f"{ratio.min():.3f}", f"{ratio.max():.3f}"
    return low if low == high else f"{low} to {high}"


@table(LAW)
def law_over_exact(study: Study) -> pd.DataFrame:
    """The learning law over the exact asymptotics, for five tasks."""
    found = study.table
    ends = f"α = {setting(found['alpha'].min())} to {setting(found['alpha'].max())}"
    rows = []
    for task, part in found.groupby(["length", "signals", "strength", "prior"], sort=False):
        spans = {
            f"pooled: law over exact, {ends}": _span(part["pooled_law"] / part["pooled"]),
            "attention: law over exact": _span(part["attention_law"] / part["attention"]),
            "... with θ and d fitted at α = 1, 2, 4": _span(
                part["attention_fitted"] / part["attention"]
            ),
        }
        rows.append({"task (L, R, θ, π)": ", ".join(map(setting, task)), **spans})
    return pd.DataFrame(rows)


@value(LAW)
def law_off_at_most(study: Study) -> str:
    """How many times too large or too small the law of attention is with nothing fitted."""
    logs = np.log(study.table["attention_law"] / study.table["attention"])
    return f"{np.exp(logs.abs().max()):.1f}"


@value(LAW)
def fitted_law_off_at_most(study: Study) -> str:
    """How far the fitted law of attention is off at the most bags."""
    last = study.table[study.table["alpha"] == study.table["alpha"].max()]
    return percent(float((last["attention_fitted"] / last["attention"] - 1).abs().max()), 0)


@table(KINDS)
def readouts_of_other_bags(study: Study) -> pd.DataFrame:
    """The error of a readout on bags of each kind, by the asymptotics and drawn."""
    rows = study.tables["readouts"]
    return pd.DataFrame(
        {
            "bags": rows["kind"],
            "error of the readout": numbers(rows["predicted"]),
            "drawn": pairs(rows),
        }
    )


@table(KINDS)
def cosines_of_several_directions(study: Study) -> pd.DataFrame:
    """The cosine of a query after two steps with the mean of the directions."""
    rows = study.tables["cosines"]
    columns: dict[str, object] = {"bags": rows["kind"].unique()}
    columns["law"] = numbers(rows.groupby("kind", sort=False)["predicted"].first())
    for dim, part in rows.groupby("dim"):
        columns[f"d = {dim}, drawn"] = pairs(part)
    return pd.DataFrame(columns)


def _inside(rows: pd.DataFrame) -> pd.Series:
    return (rows["low"] <= rows["measured"]) & (rows["measured"] <= rows["high"])


@table(KINDS)
def plans_for_other_bags(study: Study) -> pd.DataFrame:
    """Measured over predicted, geometric means over pilots, of both kinds of attention."""
    rows = study.tables["plans"]
    rows = rows[rows["pooling"].str.contains("attention")]
    rows = rows.assign(log=np.log(rows["measured"] / rows["predicted"]), inside=_inside(rows))
    logs = rows.groupby(["kind", "pooling", "bags"], sort=False)["log"].mean()
    by = rows.groupby("kind", sort=False)["inside"]
    lines = []
    for kind, inside in by.sum().items():
        ratios = {
            f"{pooling}, {bags}": f"{np.exp(log):.2f}"
            for (pooling, bags), log in logs[kind].items()
        }
        ordered = {name: ratios[name] for name in sorted(ratios, key=_by_pooling)}
        lines.append({"bags": kind, **ordered, f"inside, of {by.size()[kind]}": inside})
    return pd.DataFrame(lines)


def _by_pooling(name: str) -> tuple[str, int]:
    pooling, _, bags = name.partition(", ")
    return pooling, int(bags)


@value(KINDS)
def plans_for_other_bags_inside(study: Study) -> str:
    """How many forecasts of all poolings held."""
    held = _inside(study.tables["plans"])
    return f"{held.sum()} of {len(held)}"


@table(SHAPES)
def laws_of_scores(study: Study) -> pd.DataFrame:
    """What other laws of scores do to forecasts."""
    rows = study.table
    moved = [
        "" if most == 0 else f"{100 * mean:.2g} % ({100 * most:.2g} %)"
        for mean, most in rows[["moved", "most"]].to_numpy(float)
    ]
    return pd.DataFrame(
        {
            "E from": rows["law"],
            "median moves by, mean (most)": moved,
            "rms of log(measured / predicted)": numbers(rows["gap"]),
            "inside the interval": [f"{one.inside} of {one.of}" for one in rows.itertuples()],
        }
    )


@value(SHAPES)
def half_an_interval(study: Study) -> str:
    """Half of a forecast's interval, in logarithms, with nothing added to the law."""
    return number(float(study.table["half_interval"].iloc[0]), 2)


def _setting(row: pd.Series) -> str:
    steps = "" if np.isnan(row["alpha0"]) else f", α₀ {setting(row['alpha0'])}"
    return (
        f"{row['model'].replace('vectorized', 'vectorised')}, L {row['length']}, "
        f"R {row['signals']}, θ {setting(row['strength'])}, π {setting(row['prior'])}, "
        f"α {setting(row['alpha'])}{steps}"
    )


@table(FINITE)
def off_at_finite_dimension(study: Study) -> pd.DataFrame:
    """How far measurements are above the limit, times d."""
    rows = study.table
    rows = rows.assign(setting=rows.apply(_setting, axis=1))
    first = rows[rows["dim"] == rows["dim"].min()]
    columns: dict[str, object] = {
        "setting": once(first["setting"]),
        "quantity": list(first["quantity"].str.replace("_", " ")),
    }
    for dim, part in rows.groupby("dim"):
        columns[f"d = {dim}: off × d"] = [
            f"{off:+.2f} ± {error:.2f}" for off, error in part[["off", "stderr"]].to_numpy(float)
        ]
    return pd.DataFrame(columns)


@value(FINITE)
def off_with_a_given_query(study: Study) -> str:
    """The largest such distance where no steps were taken."""
    rows = study.table
    return f"{rows.loc[rows['alpha0'].isna(), 'off'].abs().max():.1f}"
