"""Gaussian tokens and tokens on the sphere: errors against n at every sharpness of a random head.

Projections W_q, W_k, W_v of variance 1/d, the first two times the square root of the scale, scores
divided by sqrt(d), as in arXiv 2512.10656.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import pandas as pd
import torch

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.curve import NORMS, Curve
from attnlimit.errors import NoLimitError, NotConverged
from attnlimit.head import Head
from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.reproduce.compare import (
    OWN,
    agreement,
    check_rate,
    groups,
    largest_z,
    law_beside,
    where,
    with_uncertainty,
)
from attnlimit.reproduce.experiment import TSC, Config, DrawnExperiment, Shard, grid
from attnlimit.reproduce.panels import pair, pairs, panel
from attnlimit.simulate.fit import fit_rate
from attnlimit.simulate.measure import samples_curve
from attnlimit.simulate.sweep import samples_frame, samples_from_frame, sweep
from attnlimit.theory.limit import horizon, norm_rate, rms_rate
from attnlimit.theory.predict import predict
from attnlimit.tokens import Gaussian, Sphere, Tokens

STATISTICS = ("mean", "covariance", "mean_norm", "covariance_norm")
SHOWN = {"mean": "mean output", "covariance": "covariance of the outputs"}
"""Statistics of the table and the figure; the norms are in the curves alone."""
WEIGHTS_SEED = 42


def paper_head(dim: int, scale: float) -> Head:
    """The head of the paper's synthetic experiments."""
    generator = torch.Generator().manual_seed(WEIGHTS_SEED)
    query, key, value = (
        (torch.randn(dim, dim, generator=generator) / dim**0.5).double().numpy() for _ in range(3)
    )
    return Head.from_projections(scale**0.5 * query, scale**0.5 * key, value)


class Temperatures(DrawnExperiment):
    """Errors and their slopes at every scale, of the tokens that a subclass gives."""

    paper = TSC
    formula: str
    """The rate at n to infinity, in words."""

    @abstractmethod
    def tokens(self, setting: Config) -> Tokens:
        """Return the tokens of a configuration, or of a shard."""

    @abstractmethod
    def limit(self, horizon: Array, statistic: str) -> Array:
        """Return the rate of a statistic's error at n to infinity, at every horizon."""

    def check(self, config: Config) -> None:
        super().check(config)
        check_rate(config)
        checks.count(config["dim"], "dim")
        for scale in config["scales"]:
            checks.positive(scale, "scales")

    def shards(self, config: Config) -> list[Shard]:
        common = {key: config[key] for key in ("dim", "variance", "n") if key in config}
        scales = [{**common, "scale": scale} for scale in config["scales"]]
        measured = [{**shard, "kind": "measure"} for shard in reversed(scales)]
        return self.drawn(config, measured) + [{**shard, "kind": "predict"} for shard in scales]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Measure all statistics at one scale, or predict the mean."""
        head, tokens = paper_head(shard["dim"], shard["scale"]), self.tokens(shard)
        n = np.asarray(shard["n"], dtype=np.int64)
        about = {"kind": shard["kind"], "scale": shard["scale"]}
        if shard["kind"] == "measure":
            draws = sweep(head, tokens, STATISTICS, n, shard["draws"], seed)
            return samples_frame(draws).assign(**about)
        try:
            curve = predict(head, tokens, "mean", n)
        except (NotConverged, NoLimitError) as error:
            return pd.DataFrame([about | {"kind": "none", "reason": str(error)}])
        own = np.zeros(len(n)) if curve.numerical_error is None else curve.numerical_error
        return pd.DataFrame({"n": n, "value": curve.value, "error": own}).assign(**about)

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        """Curves and slopes of every scale, predicted and measured side by side."""
        tokens, parts = self.tokens(config), []
        for scale in config["scales"]:
            here = where(rows, scale=scale)
            strength = horizon(paper_head(config["dim"], scale), tokens)
            samples = samples_from_frame(where(here, kind="measure"), STATISTICS)
            for name in STATISTICS:  # the covariance is known to first order only
                predicted = where(here, kind="predict" if name == "mean" else "no law")
                curve = _curve(samples_curve(samples[name]), predicted)
                limit = float(self.limit(np.asarray(strength), name))
                parts.append(curve.assign(scale=scale, horizon=strength, slope_limit=limit))
        return pd.concat(parts, ignore_index=True)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        shown = curves[curves["statistic"].isin(SHOWN)]
        parts = [part for _, part in groups(shown, "statistic", "scale")]
        last = pd.concat([part.iloc[-1:] for part in parts], ignore_index=True)
        gaps = [(part["predicted"] / part["measured"] - 1).abs().max() for part in parts]
        rates = fitted(last)
        columns = {
            "scale": last["scale"].map("{:.3g}".format),
            "H": last["horizon"],
            "statistic": last["statistic"],
            "slope": with_uncertainty(rates),
            "predicted slope": with_uncertainty(rates, "predicted", OWN),
            "slope, n → ∞": last["slope_limit"],
            f"error at n={config['n'][-1]}": with_uncertainty(last),
            "predicted": last["predicted"],
            "largest |z|": [largest_z(part) for part in parts],
            "largest gap %": 100 * np.array(gaps),
            "variance reduction": [part["variance_reduction"].median() for part in parts],
        }
        return pd.DataFrame(columns).sort_values("statistic", ascending=False, kind="stable")

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        n, panels, slopes = config["n"], [], []
        for statistic, words in SHOWN.items():
            here = where(curves, statistic=statistic)
            first = statistic == "mean"  # one legend serves both
            series = pairs(here, "scale", names=_short, legend=first)
            title, scale = f"error of the {words}", "scale" if first else None
            panels.append(panel(title, series, "root mean square error", legend_title=scale))
            scales = here.groupby("scale", as_index=False).first()
            H = np.geomspace(scales["horizon"].min(), scales["horizon"].max(), 200)
            limit, law = f"limit n → ∞: {self.formula}", "predicted at these n"
            lines = (
                Series(H, self.limit(H, statistic), "dotted", limit, REFERENCE),
                *pair(fitted(scales), "horizon", law, "slope"),
            )
            title = f"slope of the {statistic} error, n from {n[0]} to {n[-1]}"
            slopes.append(panel(title, lines, "rate β", "horizon H", y_scale="linear"))
        caption = (
            "lines: predicted; bands: the predictions' own errors; "
            f"points: measured, {config['replicates']} draws"
        )
        return FigureSpec(self.title, (*panels, *slopes), 2, caption)

    def finding(self, config: Config, curves: pd.DataFrame) -> str:
        rates = fitted(where(curves, statistic="mean").drop_duplicates("scale"))
        first, last = rates.iloc[0], rates.iloc[-1]
        return (
            f"From horizon {first['horizon']:.2g} to {last['horizon']:.2g} the rate of the mean "
            f"output's error falls from {first['measured']:.3f} to {last['measured']:.3f}; "
            f"predicted {first['predicted']:.3f} and {last['predicted']:.3f} at these n."
        )

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        here = where(curves, statistic="mean")
        rates = fitted(here.drop_duplicates("scale"))
        return [
            agreement(here, "mean"),
            agreement(rates, "rate of the mean"),
            "The covariance is known to first order only, and not predicted here.",
        ]


def fitted(rows: pd.DataFrame) -> pd.DataFrame:
    """The rates of curves, one row each, as columns `measured` and `predicted`."""
    names = {"slope": "measured", "slope_stderr": "stderr"}
    names |= {"slope_predicted": "predicted", "slope_predicted_error": OWN}
    return rows[["scale", "horizon", *names]].rename(columns=names)


def _short(scale: float) -> str:
    return f"{scale:.3g}" if scale < 1000 else f"{scale:.0f}"


def _curve(curve: Curve, predicted: pd.DataFrame) -> pd.DataFrame:
    """Roots and slope of a measured curve, beside the prediction if there is one."""
    law = None
    if len(predicted):
        law = law_beside(curve, *(predicted[name].to_numpy() for name in ("value", "error")))
    fit = fit_rate(curve, predicted=law)
    return pd.DataFrame(
        {
            "statistic": curve.statistic,
            "n": curve.n,
            "measured": curve.root,
            "stderr": curve.root_stderr,
            "predicted": np.nan if law is None else law.root,
            OWN: np.nan if law is None else law.root_numerical_error,
            "variance_reduction": curve.diagnostics.variance_reduction,
            "slope": fit.beta,
            "slope_stderr": fit.stderr,
            "slope_predicted": np.nan if fit.predicted is None else fit.predicted,
            "slope_predicted_error": np.nan if law is None else fit.predicted_error,
            "fit_p_value": fit.p_value,
            "heavy_tailed": fit.heavy_tailed,
        }
    )


def _scales(low: float, high: float, count: int) -> list[float]:
    return [float(f"{value:.4g}") for value in np.geomspace(low, high, count)]


class GaussianTokens(Temperatures):
    """The rate is 1/2 up to the horizon 1, and falls past it."""

    name = "gaussian"
    title = "Gaussian tokens: error of mean and covariance against n, from diffuse to frozen heads"
    figure_of_paper = "experiment: Gaussian tokens"
    minutes = 2
    formula = "1/2, then (√(1/4+2/H²) − 1/2)/2"
    settings = {
        "dim": 50,
        "variance": 0.1,
        "scales": _scales(0.05, 50, 12),
        "n": grid(500, 6000, 8),
        "replicates": 100,
        "block": 25,
    }
    paper_settings = {"n": grid(1000, 30000, 12), "replicates": 200, "block": 20}

    def tokens(self, setting: Config) -> Gaussian:
        return Gaussian(dim=setting["dim"], variance=setting["variance"])

    def limit(self, horizon: Array, statistic: str) -> Array:
        return norm_rate(horizon) if statistic in NORMS else rms_rate(horizon)


class SphereTokens(Temperatures):
    """The rate at n to infinity is 1/2, at every scale."""

    name = "sphere"
    title = "Tokens on the sphere: error of mean and covariance against n, exact reference"
    figure_of_paper = "experiment: tokens on the sphere"
    minutes = 3
    formula = "1/2"
    settings = {
        "dim": 50,
        "scales": _scales(10, 1e5, 5),
        "n": grid(1000, 10_000, 6),
        "replicates": 60,
        "block": 15,
    }
    paper_settings = {
        "scales": _scales(10, 1e5, 9),
        "n": grid(10_000, 100_000, 8),
        "replicates": 100,
        "block": 5,
    }

    def tokens(self, setting: Config) -> Sphere:
        return Sphere(setting["dim"])

    def limit(self, horizon: Array, statistic: str) -> Array:
        return np.full(np.shape(horizon), 0.5)


GAUSSIAN, SPHERE = GaussianTokens(), SphereTokens()
