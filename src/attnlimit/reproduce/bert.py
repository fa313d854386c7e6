"""BERT on Wikipedia text: do rates of mean and covariance fall with the horizon, head by head?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.curve import Curve
from attnlimit.models import Capture
from attnlimit.models.heads.curves import predict_capture
from attnlimit.models.heads.draws import replicate_errors
from attnlimit.montecarlo.fit import fit_rate
from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.reproduce.compare import OWN, SKEWNESS, agreement
from attnlimit.reproduce.documents import EveryHead
from attnlimit.reproduce.estimates import check_rate, law_beside, rate
from attnlimit.reproduce.experiment import Config, Shard
from attnlimit.reproduce.panels import LINEAR, marks, panel, points, reach
from attnlimit.reproduce.rows import groups, where
from attnlimit.samplers import Iid
from attnlimit.skewed import skewness

MEASURED = ["mean_norm", "covariance_norm", "mean"]


class Bert(EveryHead):
    """Rates of three errors of every head, and of the mean output of every layer."""

    name = "bert"
    title = "A real BERT: rates of mean and covariance against the horizon, over layers and heads"

    def config(self, paper: bool) -> Config:
        return self.bert() | {
            "n": [64, 96, 128, 192, 256, 320, 384],
            "replicates": 500 if paper else 150,
        }

    def check(self, config: Config) -> None:
        super().check(config)
        check_rate(config)

    def shards(self, config: Config) -> list[Shard]:
        # One stream for all: heads share their draws, so that a layer's heads can be added up.
        return [shard | {"stream": 0} for shard in super().shards(config)]

    def measure(self, found: Capture, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        n, draws, place = shard["n"], shard["replicates"], shard["place"]
        head = found[place["layer"], place["head"]]
        law = predict_capture(found, "mean", n, **place)
        errors_of_law = np.zeros(len(n)) if law.numerical_error is None else law.numerical_error
        rows = []
        known = zip(n, law.value, errors_of_law, seed.spawn(len(n)), strict=True)
        for size, predicted, own, child in known:
            errors = replicate_errors(head, MEASURED, Iid(size), draws, child)
            for name, values in errors.items():
                root = len(values) ** 0.5
                drawn = values.mean(), values.std(ddof=1) / root, float(skewness(values)) / root
                said = (predicted, own) if name == "mean" else (np.nan, np.nan)
                rows.append((name, size, *said, *drawn))
        columns = ["statistic", "n", "predicted", OWN, "measured", "stderr", SKEWNESS]
        frame = pd.DataFrame(rows, columns=columns)
        summed = found.horizons(convention="summed")[head.layer, head.head]
        return frame.assign(replicates=draws, summed_horizon=summed)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        heads = slopes(curves).groupby("layer").median()
        layers = layer_slopes(curves).set_index("layer")
        columns = {
            "H, median head": heads["horizon"],
            "H, summed convention": layers["summed_horizon"],
            "mean, norm": heads["mean_norm"],
            "mean, rms": heads["measured"],
            "predicted rms": heads["predicted"],
            "covariance, norm": heads["covariance_norm"],
            "layer, rms": layers["measured"],
            "predicted layer": layers["predicted"],
        }
        return pd.DataFrame(columns).reset_index()

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        heads = slopes(curves)
        gap = heads["measured"] - heads["predicted"]
        ranks = heads[["horizon", "mean_norm", "covariance_norm"]].corr("spearman")["horizon"]
        return [
            agreement(curves, "Mean squared error of the mean"),
            agreement(heads, "Its rate"),
            f"Rate measured less predicted over {len(heads)} heads: median {gap.median():+.3f}, "
            f"spread {gap.std():.3f}, median standard error {heads['stderr'].median():.3f}.",
            f"Rank correlation with the horizon: rate of the mean {ranks['mean_norm']:+.2f}, "
            f"of the covariance {ranks['covariance_norm']:+.2f}.",
        ]

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        heads, layers = slopes(curves), layer_slopes(curves)
        shown = heads[heads["horizon"] < 3]
        half = Series([0.2, 2.3], [0.5, 0.5], "dotted", "1/2", REFERENCE)
        mean = (
            half,
            points(shown, "horizon", label="measured"),
            marks(shown, "horizon", "predicted", "two-query law", "law", width=0.05),
            reach(shown, "horizon", "law"),
        )
        name = "covariance_norm"
        covariance = (half, points(shown, "horizon", name, f"{name}_stderr", "measured"))
        whole = (
            points(layers, "summed_horizon", label="measured"),
            marks(layers, "summed_horizon", "predicted", "two-query law", "law", width=1.5),
        )
        root, n = "rate of the root mean square", config["n"]
        title, norm = f"Mean output: rate over n = {n[0]} to {n[-1]}, by head", "rate of the norm"
        together, x = "Mean output of a layer, all heads together", "horizon, summed and unscaled"
        panels = (
            panel(title, mean, root, "horizon H", **LINEAR),
            panel("Covariance of the outputs, by head", covariance, norm, "horizon H", **LINEAR),
            panel(together, whole, root, x, **LINEAR),
        )
        caption = (
            f"{self.about(config)}, i.i.d. subsampling. "
            "The summed horizon is that of the published code."
        )
        if left := len(heads) - len(shown):
            caption += f" {left} head with a horizon above 3 is not shown."
        return FigureSpec(self.title, panels, 3, caption)


def slopes(curves: pd.DataFrame) -> pd.DataFrame:
    """Fitted rates of every head, that of the root mean square beside the predicted one."""
    rows = []
    for (layer, head), part in groups(curves, "layer", "head"):
        one = part.iloc[0]
        row = {"layer": layer, "head": head} | one[["horizon", "summed_horizon"]].to_dict()
        for statistic in MEASURED:
            chosen = where(part, statistic=statistic)
            spread, told = chosen["stderr"].to_numpy(), chosen["predicted"].to_numpy()
            curve = Curve(
                statistic=statistic,
                n=chosen["n"].to_numpy(np.int64),
                value=chosen["measured"].to_numpy(),
                stderr=spread,
                method="monte carlo",
                covariance=np.diag(spread**2),
                replicates=int(one["replicates"]),
            )
            known = bool(np.isfinite(told).all())
            law = law_beside(curve, told, chosen[OWN].to_numpy()) if known else None
            fit = fit_rate(curve, predicted=law)
            row |= {statistic: fit.beta, f"{statistic}_stderr": fit.stderr}
            if known:
                row |= {"predicted": fit.predicted, OWN: fit.predicted_error}
        rows.append(row)
    return pd.DataFrame(rows).rename(columns={"mean": "measured", "mean_stderr": "stderr"})


def layer_slopes(curves: pd.DataFrame) -> pd.DataFrame:
    """Rate of each layer's mean output, its heads side by side, against the summed horizon."""
    rows = []
    for layer, part in groups(where(curves, statistic="mean"), "layer"):
        total = part.groupby("n", as_index=False)[["measured", "predicted"]].sum()
        fitted = (rate(total, key) / 2 for key in ("measured", "predicted"))
        rows.append((layer, part["summed_horizon"].iloc[0], *fitted))
    return pd.DataFrame(rows, columns=["layer", "summed_horizon", "measured", "predicted"])


EXPERIMENT = Bert()
