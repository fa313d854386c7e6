"""Sparse tokens, in theory and drawn: what `attnlimit reproduce sparse-...` says of its laws."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import norm

from evidence.blocks import table, value
from evidence.cells import measured, number, numbers, once, pairs, setting
from evidence.runs import Run

MODELS = {"attention": "attention", "pooled": "pooled", "vectorized": "vectorised"}


@table("sparse-check --paper", says="^at d|^test_error|^train_loss")
def readouts_checked(run: Run) -> pd.DataFrame:
    """Theory against trained classifiers, test error and training loss, at the larger d."""
    rows = run.table.set_index(["quantity", "setting"])
    test, loss = rows.loc["test_error"], rows.loc["train_loss"]
    return pd.DataFrame(
        {
            "setting": [
                one.replace("strength", "θ").replace("vectorized", "vectorised")
                for one in test.index
            ],
            "test error": numbers(test["predicted"]),
            f"measured, d = {max(run.config['dims'])}": pairs(test),
            "training loss": numbers(loss["predicted"]),
            "measured": pairs(loss),
        }
    )


@table("sparse-length --paper", says="^Predicted")
def other_lengths(run: Run) -> pd.DataFrame:
    """Trained at one length, tested at others, beside the oracle of each length."""
    rows = run.table
    columns: dict[str, list[str]] = {"L of the test": [setting(one) for one in rows["length"]]}
    for tau in run.config["sharpnesses"]:
        name = f"sharpness {tau:g}" if tau else "mean pooling"
        columns[name] = numbers(rows[f"tau {tau:g}"])
        measured = pairs(rows, f"tau {tau:g} measured", f"tau {tau:g} stderr")
        columns[f"{name}, measured"] = measured
    return pd.DataFrame(columns | {"attention oracle": numbers(rows["oracle"])})


@table("sparse-curves --paper", says="^test_error|^Predictions")
def learning_curves(run: Run) -> pd.DataFrame:
    """Test error against the number of bags."""
    rows = run.table.set_index(["model", "alpha"])
    alphas = run.config["alphas"]
    columns: dict[str, list[str]] = {"α": [setting(one) for one in alphas]}
    for model, name in MODELS.items():
        of_it = rows.loc[model].loc[alphas]
        columns[name] = numbers(of_it["test_error"])
        columns[f"{name}, measured"] = pairs(of_it, "test_error measured", "test_error stderr")
    return pd.DataFrame(columns)


@table("sparse-capacity --paper", says="^Predicted")
def bags_separated(run: Run) -> pd.DataFrame:
    """How many bags can be separated, against linear programs."""
    rows = run.table.dropna(subset=["alpha_star measured"])
    return pd.DataFrame(
        {
            "classifier": rows["model"].map(MODELS),
            "α*": numbers(rows["alpha_star"], 4),
            "measured": pairs(rows, "alpha_star measured", "alpha_star stderr"),
            "at d": numbers(rows["at d"], 4),
            "at d/2": numbers(rows["at d/2"], 4),
            "d": [run.config["dims"][one] for one in rows["model"]],
        }
    )


@table("sparse-alignment --paper", says="^cosine|^Beyond")
def cosines_after_two_steps(run: Run) -> pd.DataFrame:
    """The cosine of the query with the signal."""
    rows = run.table
    return pd.DataFrame(
        {
            "setting": once(rows["setting"].str.replace("strength", "θ").str.replace("prior", "π")),
            "α0": [setting(one) for one in rows["alpha0"]],
            "cosine": numbers(rows["cosine"], 4),
            "measured": pairs(rows, "cosine measured", "cosine stderr"),
        }
    )


@table("sparse-oracle --paper", says="against measured")
def errors_with_the_signal_known(run: Run) -> pd.DataFrame:
    """Errors of the best rules against the strength."""
    rows = run.curves.set_index(["quantity", "strength"])
    rules = {"bayes": "Bayes", "attention": "attention", "pooled": "linear"}
    columns = {"θ": numbers(rows.loc["bayes"].index)}
    for rule, name in rules.items():
        columns[name] = numbers(rows.loc[rule]["predicted"])
        columns[f"{name}, measured"] = pairs(rows.loc[rule])
    return pd.DataFrame(columns)


@table("sparse-separation --paper", says="against measured")
def strength_by_length(run: Run) -> pd.DataFrame:
    """The strength that 5 % error needs."""
    rows = run.curves.set_index(["rule", "length"])
    columns: dict[str, list[object]] = {"L": list(rows.loc["bayes"].index)}
    rules = {"bayes": "Bayes", "attention": "attention", "pooled": "linear"}
    for rule, name in rules.items():
        columns[name] = list(numbers(rows.loc[rule]["strength"], 4))
    for rule in ("attention", "bayes"):
        columns[f"{rules[rule]}, error measured there"] = list(pairs(rows.loc[rule]))
    return pd.DataFrame(columns)


@value("sparse-separation --paper")
def growth_of_strength(run: Run) -> str:
    """How the strength grows with the length."""
    rows = run.curves.set_index(["rule", "length"])["strength"]
    grown = {rule: rows[rule].iloc[-1] / rows[rule].iloc[0] for rule in ("attention", "pooled")}
    return f"{grown['attention']:.2f} times for attention, {grown['pooled']:.0f} for linear rules"


@value("sparse-separation --paper")
def strength_by_the_law(run: Run) -> str:
    """What the law of large L says at the largest, and what attention needs there."""
    rows = run.curves[run.curves["rule"] == "attention"].sort_values("length")
    longest = rows.iloc[-1]
    law = np.sqrt(2 * np.log(longest["length"])) - norm.ppf(2 * run.config["error"])
    return f"the law says {law:.2f}, attention needs {longest['strength']:.2f}"


def _enough(run: Run, name: str) -> pd.DataFrame:
    rows = run.curves[(run.curves["set"] == name) & (run.curves["fit"] == 1)]
    by = rows.set_index(["quantity", "sampler", "n"])
    feature, decision = by.loc["feature error"], by.loc["decision changed"]

    def said(row: pd.Series) -> str:
        drawn = f" / {measured(row['measured'], row['stderr'])}" if row["stderr"] > 1e-9 else ""
        return number(row["predicted"], 4) + drawn

    return pd.DataFrame(
        {
            "drawn": once(one for one, _ in feature.index),
            "n": [n for _, n in feature.index],
            "feature": [said(row) for _, row in feature.iterrows()],
            "decisions that change": [said(row) for _, row in decision.iterrows()],
        }
    )


@table("sparse-enough --paper", says="^ucsb.*(feature|decision)")
def instances_of_patches(run: Run) -> pd.DataFrame:
    """UCSB breast cancer."""
    return _enough(run, "ucsb_breast_cancer")


@table("sparse-enough --paper", says="^digits.*(feature|decision)|^Beyond")
def instances_of_digits(run: Run) -> pd.DataFrame:
    """Bags of digits."""
    return _enough(run, "digits")
