"""How do mean and covariance errors fall with n as a random head is sharpened?

Shared by the Gaussian tokens and the sphere of arXiv 2512.10656: projections W_q, W_k, W_v of
variance 1/d, the first two times the square root of the scale, scores divided by sqrt(d).
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import pandas as pd
import torch

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.curve import Curve
from attnlimit.errors import NoLimitError, NotConverged
from attnlimit.head import Head
from attnlimit.montecarlo.controls import token_features
from attnlimit.montecarlo.fit import fit_rate
from attnlimit.montecarlo.measure import samples_curve
from attnlimit.montecarlo.storage import samples_frame, samples_from_frame
from attnlimit.montecarlo.sweep import sweep
from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.reproduce.compare import OWN, agreement, largest_z, said
from attnlimit.reproduce.estimates import check_rate, law_beside
from attnlimit.reproduce.experiment import Config, DrawnExperiment, Shard
from attnlimit.reproduce.panels import pair, pairs, panel
from attnlimit.reproduce.rows import groups, where
from attnlimit.theory.limit import horizon
from attnlimit.theory.predict import predict
from attnlimit.tokens import Tokens

STATISTICS = ("mean", "covariance", "mean_norm", "covariance_norm")
PREDICTED = {"mean": "mean output", "covariance": "covariance of the outputs"}
WEIGHTS_SEED = 42


def paper_head(dim: int, scale: float) -> Head:
    """The head of the paper's synthetic experiments."""
    generator = torch.Generator().manual_seed(WEIGHTS_SEED)
    query, key, value = (
        (torch.randn(dim, dim, generator=generator) / dim**0.5).double().numpy() for _ in range(3)
    )
    return Head.from_projections(scale**0.5 * query, scale**0.5 * key, value)


class Temperatures(DrawnExperiment):
    """Errors and their slopes at every scale, of the tokens that a subclass names."""

    formula: str
    """The rate in the end, in words."""

    @abstractmethod
    def tokens(self, setting: Config) -> Tokens:
        """Return the tokens of a configuration, or of a shard."""

    @abstractmethod
    def limit(self, horizon: Array, statistic: str) -> Array:
        """Return the rate of a statistic's error in the end, at every horizon."""

    def check(self, config: Config) -> None:
        super().check(config)
        check_rate(config)
        checks.count(config["dim"], "dim")
        for scale in config["scales"]:
            checks.positive(scale, "scales")

    def shards(self, config: Config) -> list[Shard]:
        common = {key: config[key] for key in ("dim", "variance", "n") if key in config}
        measured = [{**common, "kind": "measure", "scale": s} for s in reversed(config["scales"])]
        return self.drawn(config, measured) + [
            {**common, "kind": "predict", "scale": scale, "statistic": statistic}
            for scale in config["scales"]
            for statistic in PREDICTED
        ]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Measure or predict at one temperature."""
        head, tokens = paper_head(shard["dim"], shard["scale"]), self.tokens(shard)
        n = np.asarray(shard["n"], dtype=np.int64)
        if shard["kind"] == "measure":
            frame = samples_frame(sweep(head, tokens, STATISTICS, n, shard["draws"], seed))
            return frame.assign(kind="measure", scale=shard["scale"])
        about = {key: shard[key] for key in ("kind", "scale", "statistic")}
        try:
            curve = predict(head, tokens, shard["statistic"], n)
        except (NotConverged, NoLimitError) as error:
            return pd.DataFrame([about | {"kind": "none", "reason": str(error)}])
        own = np.zeros(len(n)) if curve.numerical_error is None else curve.numerical_error
        return pd.DataFrame({"n": n, "value": curve.value, "error": own}).assign(**about)

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        """Curves and slopes of every temperature, predicted and measured side by side."""
        tokens = self.tokens(config)
        parts = []
        for scale in config["scales"]:
            head = paper_head(config["dim"], scale)
            here = where(rows, scale=scale)
            strength = horizon(head, tokens)
            samples = samples_from_frame(
                where(here, kind="measure"), STATISTICS, token_features(head, tokens).gram
            )
            for name in STATISTICS:
                found = where(here, kind="predict", statistic=name)
                curve = _curve(samples_curve(samples[name]), found)
                limit = float(self.limit(np.asarray(strength), name))
                parts.append(curve.assign(scale=scale, horizon=strength, slope_limit=limit))
        return pd.concat(parts, ignore_index=True)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        shown = curves[curves["statistic"].isin(PREDICTED)]
        parts = [part for _, part in groups(shown, "statistic", "scale")]
        last = pd.concat([part.iloc[-1:] for part in parts], ignore_index=True)
        gaps = [(part["predicted"] / part["measured"] - 1).abs().max() for part in parts]
        told = fitted(last)
        columns = {
            "scale": last["scale"].map("{:.3g}".format),
            "H": last["horizon"],
            "statistic": last["statistic"],
            "slope": said(told),
            "predicted slope": said(told, "predicted", OWN),
            "slope, n → ∞": last["slope_limit"],
            f"error at n={config['n'][-1]}": said(last),
            "predicted": last["predicted"],
            "largest |z|": [largest_z(part) for part in parts],
            "largest gap %": 100 * np.array(gaps),
            "variance reduction": [part["variance_reduction"].median() for part in parts],
        }
        return pd.DataFrame(columns).sort_values("statistic", ascending=False, kind="stable")

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        n, panels, slopes = config["n"], [], []
        for statistic, words in PREDICTED.items():
            here = where(curves, statistic=statistic)
            first = statistic == "mean"  # one legend serves both
            series = pairs(here, "scale", names=_short, legend=first)
            title, scale = f"error of the {words}", "scale" if first else None
            panels.append(panel(title, series, "root mean square error", legend_title=scale))
            one = here.groupby("scale", as_index=False).first()
            H = np.geomspace(one["horizon"].min(), one["horizon"].max(), 200)
            limit, law = f"limit n → ∞: {self.formula}", "predicted at these n"
            lines = (
                Series(H, self.limit(H, statistic), "dotted", limit, REFERENCE),
                *pair(fitted(one), "horizon", law, "slope"),
            )
            title = f"slope of the {statistic} error, n from {n[0]} to {n[-1]}"
            slopes.append(panel(title, lines, "rate β", "horizon H", y_scale="linear"))
        caption = (
            "lines: predicted; bands: what predictions may be off by; "
            f"points: measured, {config['replicates']} draws"
        )
        return FigureSpec(self.title, (*panels, *slopes), 2, caption)

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        said = []
        for name in PREDICTED:
            here = where(curves, statistic=name)
            rates = fitted(here.drop_duplicates("scale"))
            said += [agreement(here, name), agreement(rates, f"rate of the {name}")]
        return said


def fitted(rows: pd.DataFrame) -> pd.DataFrame:
    """The rates of curves, one row each, as what is predicted and measured."""
    names = {"slope": "measured", "slope_stderr": "stderr"}
    names |= {"slope_predicted": "predicted", "slope_predicted_error": OWN}
    return rows[["scale", "horizon", *names]].rename(columns=names)


def _short(scale: float) -> str:
    return f"{scale:.3g}" if scale < 1000 else f"{scale:.0f}"


def _curve(curve: Curve, predicted: pd.DataFrame) -> pd.DataFrame:
    """Roots and slopes of a measured curve, beside what was predicted for it, if anything was."""
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
