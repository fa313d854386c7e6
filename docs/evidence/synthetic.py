"""Tokens drawn from a law: gaussian, sphere, uniform, heavy, critical-temperature."""

from __future__ import annotations

import numpy as np
import pandas as pd

from evidence.blocks import table
from evidence.cells import measured, number, numbers, once, pairs, power, restated, setting
from evidence.runs import Run


def _rates(run: Run) -> pd.DataFrame:
    """Rates of the mean and of the covariance, measured and predicted, by scale."""
    rates = run.curves.drop_duplicates(["scale", "statistic"]).set_index(["statistic", "scale"])
    mean, cov = rates.loc["mean"], rates.loc["covariance"]
    return pd.DataFrame(
        {
            "scale": [setting(one) for one in mean.index],
            "H": numbers(mean["horizon"], 2),
            "rate of the mean": pairs(mean, "slope", "slope_stderr"),
            "predicted": pairs(mean, "slope_predicted", "slope_predicted_error"),
            "n → ∞": numbers(mean["slope_limit"], 4),
            "rate of the covariance": pairs(cov, "slope", "slope_stderr"),
            "predicted ": pairs(cov, "slope_predicted", "slope_predicted_error"),
        }
    )


@table("gaussian --paper", says="against measured")
def gaussian_rates(run: Run) -> pd.DataFrame:
    """Rates over n for Gaussian tokens."""
    return _rates(run)


@table("sphere --paper")
def sphere_rates(run: Run) -> pd.DataFrame:
    """Rates over n for tokens on the sphere."""
    return _rates(run)


@table("clt --paper", says="against measured")
def deviations_by_horizon(run: Run) -> pd.DataFrame:
    """The standard deviation of √n times the error, at the smallest and the largest n."""
    rows = run.table[run.table["n"].isin([run.table["n"].min(), run.table["n"].max()])]
    return pd.DataFrame(
        {
            "H": once(map(setting, rows["H"])),
            "n": rows["n"],
            "sd of √n·error": rows["sd of √n·error"].map(restated),
            "predicted": numbers(rows["predicted sd"], 4),
            "n → ∞": [number(one, 4) or "none" for one in rows["n → ∞"]],
            "excess kurtosis": numbers(rows["excess kurtosis"], 2),
        }
    )


@table("sphere --paper", says="against measured")
def sphere_errors(run: Run) -> pd.DataFrame:
    """Root mean squared errors of mean and covariance at the first and last n."""
    rows = run.curves[run.curves["n"].isin([run.curves["n"].min(), run.curves["n"].max()])]
    by = rows.set_index(["statistic", "scale", "n"]).sort_index()
    mean, cov = by.loc["mean"], by.loc["covariance"]
    return pd.DataFrame(
        {
            "scale": [power(scale) for scale, _ in mean.index],
            "H": numbers(mean["horizon"], 2),
            "n": [n for _, n in mean.index],
            "mean, measured": pairs(mean),
            "predicted": numbers(mean["predicted"], 4),
            "covariance, measured": pairs(cov),
            "predicted ": pairs(cov, "predicted", "prediction_error"),
        }
    )


@table("uniform --paper")
def largest_error(run: Run) -> pd.DataFrame:
    """The largest error over a ball at the largest n, times √n."""
    rows = run.curves[run.curves["n"] == run.curves["n"].max()]
    root = np.sqrt(rows["n"])
    bound = [number(one) or "n too small" for one in root * rows["bound"]]
    return pd.DataFrame(
        {
            "tokens": rows["tokens"].replace("gaussian", "Gaussian")
            + ", d = "
            + rows["dim"].astype(str),
            "R": [setting(one) for one in rows["radius"]],
            f"√n E sup, n = {rows['n'].iloc[0]}": [
                measured(*one)
                for one in zip(root * rows["sup"], root * rows["stderr"], strict=True)
            ],
            "C(R) = sup √tr C(x)": numbers(rows["constant"]),
            "√n × bound (95 %)": bound,
        }
    )


@table("heavy --paper")
def heavy_rates(run: Run) -> pd.DataFrame:
    """How the error falls past the horizon 1, and how heavy its tail is at the largest n."""
    stable = run.curves[run.curves["kind"] == "stable"]
    last = stable[stable["n"] == stable["n"].max()].set_index("parameter")
    said = run.table.set_index("what")["measured"]
    horizons = last.index
    return pd.DataFrame(
        {
            "H": [setting(one) for one in horizons],
            f"rate of E\\|error\\|, n = {power(stable['n'].min())} to {power(stable['n'].max())}": [
                restated(said[f"H = {one:g}: rate of E|error|"]) for one in horizons
            ],
            "1/(1+H²)": [number(1 / (1 + one**2)) for one in horizons],
            "99 % quantile over median": pairs(last, "tail_ratio", "tail_ratio_stderr"),
        }
    )


@table("heavy --paper", says="against measured")
def laplace_errors(run: Run) -> pd.DataFrame:
    """Laplace tokens below and past the end of their CGF."""
    rows = run.curves[run.curves["kind"] == "laplace"]
    rows = rows[rows["n"].isin([rows["n"].min(), rows["n"].max()])].sort_values(["parameter", "n"])
    return pd.DataFrame(
        {
            "t b": once(map(setting, rows["parameter"])),
            "n": rows["n"],
            "squared error, predicted": numbers(rows["predicted"]),
            "measured": pairs(rows),
            "output": numbers(rows["output"]),
            "limit": [number(one) or "none" for one in rows["limit"]],
        }
    )


@table("critical-temperature --paper", says="against measured|^In dimension")
def participation_by_temperature(run: Run) -> pd.DataFrame:
    """Participation at the largest drawn n: draws, the exact law, limit laws."""
    of_it = run.curves[run.curves["statistic"] == "participation"]
    drawn = of_it[of_it["measured"].notna()]
    rows = drawn[drawn["n"] == drawn["n"].max()]
    far = of_it[of_it["n"] == of_it["n"].max()].set_index(["dim", "theta"])
    off = [far.loc[(one.dim, one.theta)] for one in rows.itertuples()]
    return pd.DataFrame(
        {
            "d": once(rows["dim"]),
            "θ": [setting(one) for one in rows["theta"]],
            "measured": pairs(rows),
            "exact": numbers(rows["predicted"], 4),
            "limit law": numbers(rows["critical"], 4),
            "adapted": numbers(rows["adapted"], 4),
            "limit/exact - 1 at n = 10¹²": [
                f"{one['critical'] / one['predicted'] - 1:.1%}" for one in off
            ],
        }
    )


@table("hardmax --paper", says="against measured")
def hardmax_measured(run: Run) -> pd.DataFrame:
    """The best of n tokens, and cooled scores, measured at the largest n that is drawn."""
    rows = run.table
    names = {"gaussian": "Gaussian", "sphere": "Sphere", "cube": "Cube"}
    return pd.DataFrame(
        {
            "tokens": rows["tokens"].replace(names, regex=True),
            "scores": rows["scores"],
            "n": rows["n"],
            "measured error": rows["measured error"].map(restated),
            "exact": numbers(rows["exact error"], 4),
            "local rate at n = 10¹²": numbers(rows["local rate at n=1e+12"]),
        }
    )
