"""Heads of a BERT encoder on Wikipedia text: rates, a window with random keys, and t-SNE of keys.

The paper's model is BERT; by default this is MiniLM, a BERT of 6 layers that is bundled.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from scipy.spatial.distance import cdist

from attnlimit.curve import Curve
from attnlimit.errors import MissingExtra
from attnlimit.intervals import skewness
from attnlimit.models.captures import Capture
from attnlimit.models.curves import predict_capture, replicate_errors
from attnlimit.models.profile import head_horizon, unscaled_horizon
from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.reproduce.compare import (
    OWN,
    SKEWNESS,
    agreement,
    check_rate,
    groups,
    law_beside,
    rate,
    where,
)
from attnlimit.reproduce.documents import capture_of, predicted_and_measured, source
from attnlimit.reproduce.experiment import TSC, Config, Experiment, Shard
from attnlimit.reproduce.panels import LINEAR, against, marks, pairs, panel, points, reach
from attnlimit.samplers import Iid, Keep, Sampler, Window
from attnlimit.simulate.fit import fit_rate

SETTINGS = source("minilm", "Anarchism", 512) | {"layers": list(range(6)), "heads": 12}
"""Settings of experiments on every head of MiniLM."""
FARTHEST = 3.0
"""Horizon past which heads are not drawn."""


class EveryHead(Experiment):
    """An experiment that measures every head of a BERT's layers on one article, a shard each."""

    paper = TSC
    takes_capture = True
    paper_model = ""
    """Hub id of the paper's model."""

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        if config["model"] != "minilm" or not self.paper_model:
            return super().remarks(config, curves)
        model = f"--set model={self.paper_model} --set 'layers=[0,1,2,3,4,5,6,7,8,9,10,11]'"
        more = f"This is MiniLM, which is bundled; the paper's model: {model}."
        return [*super().remarks(config, curves), more]

    def heading(self, config: Config) -> str:
        subject, _, rest = self.title.partition(":")
        return f"{subject if config['model'] == 'minilm' else config['model']}:{rest}"

    def about(self, config: Config) -> str:
        """Return the model and text, for a caption."""
        article = config["text"].removeprefix("wikipedia:")
        model = "MiniLM" if config["model"] == "minilm" else config["model"]
        return f"{model}, {config['tokens']} tokens of the article {article}"

    def shards(self, config: Config) -> list[Shard]:
        heads = [(layer, head) for layer in config["layers"] for head in range(config["heads"])]
        return [{**config, "place": {"layer": layer, "head": head}} for layer, head in heads]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        capture, place = capture_of(shard), shard["place"]
        rows = self.measure(capture, shard, seed)
        return rows.assign(**place, horizon=head_horizon(capture[place["layer"], place["head"]]))

    @abstractmethod
    def measure(self, capture: Capture, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Return the rows of the head at the shard's `place`."""


MEASURED = ["mean_norm", "covariance_norm", "mean"]


class Bert(EveryHead):
    """Rates of three errors of every head, and of the mean output of every layer."""

    name = "bert"
    title = "MiniLM, where the paper has BERT: rates of mean and covariance, by head"
    figure_of_paper = "experiment: BERT, i.i.d. keys"
    paper_model = "google-bert/bert-base-uncased"
    minutes = 1
    settings = SETTINGS | {"n": [64, 96, 128, 192, 256, 320, 384], "replicates": 150}
    paper_settings = {"replicates": 500}

    def check(self, config: Config) -> None:
        super().check(config)
        check_rate(config)

    def shards(self, config: Config) -> list[Shard]:
        # One stream for all: heads share their draws, so that a layer's heads can be added up.
        return [shard | {"stream": 0} for shard in super().shards(config)]

    def measure(self, capture: Capture, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        n, draws, place = shard["n"], shard["replicates"], shard["place"]
        head = capture[place["layer"], place["head"]]
        law = predict_capture(capture, "mean", n, **place)
        own = np.zeros(len(n)) if law.numerical_error is None else law.numerical_error
        rows = []
        for size, *predicted, child in zip(n, law.value, own, seed.spawn(len(n)), strict=True):
            errors = replicate_errors(head, MEASURED, Iid(size), draws, child)
            for name, values in errors.items():
                root = len(values) ** 0.5
                drawn = values.mean(), values.std(ddof=1) / root, float(skewness(values)) / root
                law_here = predicted if name == "mean" else (np.nan, np.nan)
                rows.append((name, size, *law_here, *drawn))
        columns = ["statistic", "n", "predicted", OWN, "measured", "stderr", SKEWNESS]
        layer = [capture[head.layer, number] for number in range(capture.heads)]
        q, k = (torch.cat([getattr(other, name) for other in layer], dim=1) for name in "qk")
        summed = unscaled_horizon(q, k)  # of all heads as one matrix, as in the published code
        frame = pd.DataFrame(rows, columns=columns)
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

    def finding(self, config: Config, curves: pd.DataFrame) -> str:
        rates = slopes(curves).set_index("horizon")["measured"]
        parts = {"horizons up to 1": rates[rates.index <= 1], "larger ones": rates[rates.index > 1]}
        medians = (f"{part.median():.2f} for {name}" for name, part in parts.items() if len(part))
        return f"The error of a head's mean output falls at a median rate of {', '.join(medians)}."

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        heads = slopes(curves)
        gap = heads["measured"] - heads["predicted"]
        ranks = heads[["horizon", "mean_norm", "covariance_norm"]].corr("spearman")["horizon"]
        return [
            *super().remarks(config, curves),
            agreement(heads, "Its rate"),
            f"Rate measured less predicted over {len(heads)} heads: median {gap.median():+.3f}, "
            f"spread {gap.std():.3f}, median standard error {heads['stderr'].median():.3f}.",
            f"Rank correlation with the horizon: rate of the mean {ranks['mean_norm']:+.2f}, "
            f"of the covariance {ranks['covariance_norm']:+.2f}.",
        ]

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        heads, layers, n = slopes(curves), layer_slopes(curves), config["n"]
        shown = heads[heads["horizon"] < FARTHEST]
        half = Series([0.2, 2.3], [0.5, 0.5], "dotted", "1/2", REFERENCE)
        law = "two-query law"
        mean = (
            half,
            points(shown, "horizon", label="measured"),
            marks(shown, "horizon", "predicted", law, "law", width=0.05),
            reach(shown, "horizon", "law"),
        )
        name = "covariance_norm"
        covariance = (half, points(shown, "horizon", name, f"{name}_stderr", "measured"))
        whole = (
            points(layers, "summed_horizon", label="measured"),
            marks(layers, "summed_horizon", "predicted", law, "law", width=1.5),
        )
        title, root = f"Mean output: rate over n = {n[0]} to {n[-1]}, by head", "rate of the rms"
        together, x = "Mean output of a layer, all heads together", "horizon, summed and unscaled"
        by_head = "Covariance of the outputs, by head"
        panels = (
            panel(title, mean, root, "horizon H", **LINEAR),
            panel(by_head, covariance, "rate of the norm", "horizon H", **LINEAR),
            panel(together, whole, root, x, **LINEAR),
        )
        caption = (
            f"{self.about(config)}, i.i.d. subsampling. "
            "The summed horizon is that of the published code."
        )
        if left := len(heads) - len(shown):
            caption += f" {left} head with a horizon above {FARTHEST:g} is not shown."
        return FigureSpec(self.heading(config), panels, 3, caption)


def slopes(curves: pd.DataFrame) -> pd.DataFrame:
    """Fitted rates of every head, that of the root mean square beside the predicted one."""
    rows = []
    for (layer, head), part in groups(curves, "layer", "head"):
        first = part.iloc[0]
        row = {"layer": layer, "head": head} | first[["horizon", "summed_horizon"]].to_dict()
        for statistic in MEASURED:
            chosen = where(part, statistic=statistic)
            spread, predicted = chosen["stderr"].to_numpy(), chosen["predicted"].to_numpy()
            curve = Curve(
                statistic=statistic,
                n=chosen["n"].to_numpy(np.int64),
                value=chosen["measured"].to_numpy(),
                stderr=spread,
                method="monte carlo",
                covariance=np.diag(spread**2),
                replicates=int(first["replicates"]),
            )
            known = bool(np.isfinite(predicted).all())
            law = law_beside(curve, predicted, chosen[OWN].to_numpy()) if known else None
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


SAMPLERS: dict[str, Callable[[int, int], Sampler]] = {
    "window": lambda n, random: Window(n - random, random=random),
    "weighted": lambda n, random: Keep(Window(n - random, random=0), sample=random),
    "iid": lambda n, random: Iid(n),
}
NAMES = {
    "window": "window + 50 random",
    "weighted": "window + 50 random, weighted",
    "iid": "i.i.d.",
}


class WindowAndRandom(EveryHead):
    """Error of each head's outputs, relative to their size, on a window plus random keys."""

    name = "window"
    title = "MiniLM, where the paper has BigBird: a window and 50 random keys against i.i.d."
    figure_of_paper = "experiment: window and random keys"
    paper_model = "google/bigbird-roberta-base"
    minutes = 3
    settings = SETTINGS | {
        "random": 50,
        "shown_n": 128,
        "n": [64, 96, 128, 192, 256, 320, 384],
        "replicates": 40,
    }
    paper_settings = {"replicates": 200}

    def measure(self, capture: Capture, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        place, draws, rows = shard["place"], shard["replicates"], []
        outputs = capture[place["layer"], place["head"]].output()
        size = outputs.square().sum(1).mean().sqrt().item()
        for scheme, sampler in SAMPLERS.items():
            for n in shard["n"]:
                how = {"sampler": sampler(n, shard["random"]), **place}
                counts = [n] if scheme == "iid" else None
                both = predicted_and_measured(capture, "pointwise", counts, draws, seed, **how)
                rows.append((both / size).assign(scheme=scheme, n=n))
        return pd.concat(rows, ignore_index=True)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        n, shown = config["n"], config["shown_n"]
        here = curves[curves["n"].isin([n[0], shown, 2 * shown, n[-1]])]
        here = here.assign(gap=(here["predicted"] / here["measured"] - 1).abs())
        columns = {
            "median relative error": ("measured", "median"),
            "predicted": ("predicted", "median"),
            "worst |predicted/measured - 1|": ("gap", "max"),
        }
        table = here.groupby(["scheme", "n"], sort=False, as_index=False).agg(**columns)
        return table.assign(scheme=table["scheme"].map(NAMES))

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        better, heads = self._better(config, curves, "weighted", "window")
        return [
            *super().remarks(config, curves),
            "Weighting the random keys by the inverse of their inclusion probability lowers the "
            f"error in {better} of {heads} heads.",
        ]

    def finding(self, config: Config, curves: pd.DataFrame) -> str:
        better, heads = self._better(config, curves, "window", "iid")
        return (
            f"At n = {config['shown_n']} a window with random keys has a smaller error than i.i.d. "
            f"keys in {better} of {heads} heads."
        )

    def _better(
        self, config: Config, curves: pd.DataFrame, scheme: str, other: str
    ) -> tuple[int, int]:
        """Heads in which a scheme has a smaller error than another, and all heads."""
        here = where(curves, n=config["shown_n"])
        errors = here.pivot_table("measured", ["layer", "head"], "scheme")
        return int((errors[scheme] < errors[other]).sum()), len(errors)

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        by, rates = ["scheme", "n"], []
        medians = curves.groupby(by, sort=False, as_index=False)[["predicted", "measured"]].median()
        for scheme, part in groups(curves[curves["horizon"] < FARTHEST], "scheme"):
            slopes = [rate(head) for _, head in groups(part, "layer", "head")]
            horizons = part.groupby(["layer", "head"], sort=False)["horizon"].first()
            rates.append(Series(horizons, slopes, "points", NAMES[scheme], scheme))
        n, shown_n = config["n"], config["shown_n"]
        title = f"Rate over n = {n[0]} to {n[-1]}, by head"
        typical = "Median over the heads (lines: law, points: measured)"
        y, x = "relative error of the output", "keys seen by a query, n"
        heads = against(where(curves, n=shown_n), "scheme", NAMES)
        panels = (
            panel(typical, pairs(medians, "scheme", names=NAMES), y, x),
            panel(f"Every head at n = {shown_n}", heads, "measured", "predicted"),
            panel(title, rates, "rate", "horizon H", **LINEAR),
        )
        caption = (
            f"{self.about(config)}; the last panel leaves out heads whose horizon is above "
            f"{FARTHEST:g}."
        )
        return FigureSpec(self.heading(config), panels, 3, caption)


class TokenCloud(Experiment):
    """Keys of all heads of a layer in two dimensions, and the distance to the nearest sampled."""

    name = "tsne"
    title = "Subsamples covering the tokens of an article, in two dimensions (t-SNE)"
    paper = TSC
    figure_of_paper = "figure: sampled tokens"
    minutes = 0.5
    takes_capture = True
    settings = source("minilm", "Anarchism", 512) | {"layers": [0, 5], "n": [16, 64, 256]}

    def shards(self, config: Config) -> list[Shard]:
        return [{**config, "layer": layer} for layer in config["layers"]]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        try:
            from sklearn.manifold import TSNE
        except ImportError:
            raise MissingExtra("t-SNE needs scikit-learn: `pip install scikit-learn`.") from None
        layer = capture_of(shard).layers[shard["layer"]]
        keys = layer.k.transpose(0, 1).flatten(1).double().numpy()  # all heads' keys of a token
        number = int(seed.generate_state(1)[0])
        flat = TSNE(perplexity=30, init="pca", random_state=number).fit_transform(keys)
        rank = np.random.default_rng(seed).permutation(len(keys))
        gaps = cdist(keys, keys)
        nearest = {n: gaps[:, rank < n].min(axis=1).mean() for n in shard["n"]}
        cover = {f"cover_{n}": gap / gaps.mean() for n, gap in nearest.items()}
        frame = pd.DataFrame({"x": flat[:, 0], "y": flat[:, 1], "rank": rank})
        return frame.assign(layer=shard["layer"], **cover)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        first = curves.drop_duplicates("layer")
        covers = {f"cover_{n}": n for n in config["n"]}
        long = first.rename(columns=covers).melt(
            "layer", list(covers.values()), "n", "distance to the nearest sampled key"
        )
        return long.sort_values(["layer", "n"], ignore_index=True)

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        return [
            "Distances are measured in the layer's key space, over the mean distance of two keys."
        ]

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        panels = []
        for layer, part in groups(curves, "layer"):
            for n in config["n"]:
                inside = part[part["rank"] < n]
                series = (
                    Series(part["x"], part["y"], "points", "all tokens", REFERENCE),
                    Series(inside["x"], inside["y"], "points", "subsample", "subsample"),
                )
                panels.append(panel(f"Layer {layer}, n = {n}", series, "", "", **LINEAR))
        caption = "Keys of all heads of MiniLM, article Anarchism."
        return FigureSpec(self.title, panels, 3, caption)


BERT, WINDOW, TSNE = Bert(), WindowAndRandom(), TokenCloud()
