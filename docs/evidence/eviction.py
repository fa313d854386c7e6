"""A cache that stays small: eviction, needle."""

from __future__ import annotations

import numpy as np
import pandas as pd

from evidence.blocks import table, value
from evidence.cells import article, measured, number, numbers, once, pairs, percent, restated
from evidence.runs import Run

EVICTION = "eviction --paper"
OURS = {"weighted, sized by output": "`Evict`, sized by output", "weighted": "`Evict`"}


def _after(run: Run) -> pd.DataFrame:
    return run.curves[run.curves["part"] == "after"]


def _means(run: Run) -> pd.DataFrame:
    """Means over texts, with the error of a mean of independent draws."""
    rows = _after(run).assign(square=lambda frame: frame["stderr"].fillna(0) ** 2)
    by = rows.groupby(["keep", "rule"])
    error = np.sqrt(by["square"].sum()) / by.size()
    return pd.DataFrame({"measured": by["measured"].mean(), "stderr": error}).reset_index()


@table(EVICTION, says="^Mean over texts")
def rules_that_drop_keys(run: Run) -> pd.DataFrame:
    """KL after the cut, by text, share kept and rule."""
    mean = _means(run).assign(text="wikipedia:mean")
    rows = pd.concat([_after(run), mean])
    others = [rule for rule in rows["rule"].unique() if rule not in OURS]
    lines = []
    for text in rows["text"].unique():
        for keep in sorted(rows["keep"].unique(), reverse=True):
            cell = rows[(rows["text"] == text) & (rows["keep"] == keep)].set_index("rule")
            best = cell.loc[others, "measured"].min()
            line = {"text": "mean" if text == "wikipedia:mean" else article(text)}
            line["kept"] = percent(keep, 0)
            for rule, name in OURS.items():
                line[name] = measured(*cell.loc[rule, ["measured", "stderr"]])
            line |= {rule: number(cell.loc[rule, "measured"]) for rule in others}
            line["ratio to the best of these"] = (
                f"{cell.loc[next(iter(OURS)), 'measured'] / best:.2f}"
            )
            line["of `Evict`"] = f"{cell.loc['weighted', 'measured'] / best:.2f}"
            lines.append(line)
    return pd.DataFrame(lines).assign(text=lambda frame: once(frame["text"]))


@value(EVICTION)
def eviction_against_others(run: Run) -> str:
    """The ratio of the means to the best other rule."""
    mean = _means(run).set_index(["keep", "rule"])["measured"].unstack()
    best = mean[[rule for rule in mean if rule not in OURS]].min(axis=1)
    ratio = (mean[next(iter(OURS))] / best).sort_index(ascending=False)
    said = [f"{one:.2f}" for one in ratio]
    return f"{', '.join(said[:-1])} and {said[-1]}"


@value(EVICTION)
def cache_after_a_cut(run: Run) -> str:
    """Megabytes that are left by the shares that are kept, of those of the dense cache."""
    ours = _after(run)[_after(run)["rule"] == next(iter(OURS))]
    by = ours.groupby("keep")[["cache_bytes", "dense_bytes"]].mean().sort_index(ascending=False)
    *most, last = [f"{one / 1e6:.2f}" for one in by["cache_bytes"]]
    return f"{', '.join(most)} and {last} MB of {by['dense_bytes'].iloc[0] / 1e6:.2f}"


@table(EVICTION, says="second half|^Predicted|^Beyond")
def cut_predicted(run: Run) -> pd.DataFrame:
    """What is said before the cut, on the second half of the prompt."""
    rows = run.curves[run.curves["predicted"].notna()]
    ours = [rows[rows["rule"] == rule].reset_index(drop=True) for rule in OURS]
    columns = {
        "text": once(ours[0]["text"].map(article)),
        "kept": [percent(one, 0) for one in ours[0]["keep"]],
    }
    for name, of_it in zip(("sized by output", "one c"), ours, strict=True):
        columns[f"{name}, predicted"] = pairs(of_it, "predicted", "predicted_stderr")
        columns[f"{name}, measured"] = pairs(of_it)
        columns[f"{name}, ratio"] = numbers(of_it["predicted"] / of_it["measured"])
    return pd.DataFrame(columns)


@table("needle --paper", says="^Where|^Predicted|^Beyond")
def needles_found(run: Run) -> pd.DataFrame:
    """What is found on fewer keys."""
    rows = run.table
    trusted = {"trusted": [percent(one, 0) for one in rows["trusted"]]} if "trusted" in rows else {}
    return rows.assign(
        **{
            "chance of a token": numbers(rows["chance of a token"], 2),
            "KL, predicted": [number(one) or "–" for one in rows["KL, predicted"]],
            "KL, measured": [restated(one) or "–" for one in rows["KL, measured"]],
            **trusted,
        }
    )
