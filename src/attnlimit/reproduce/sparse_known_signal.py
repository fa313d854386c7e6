"""Sparse tokens with a known signal: the strength that is needed against the length."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri, softmax

from attnlimit.checks import Array
from attnlimit.picture import REFERENCE, FigureSpec, Series
from attnlimit.reproduce.compare import where
from attnlimit.reproduce.experiment import STC, Config, Experiment, Shard
from attnlimit.reproduce.panels import panel
from attnlimit.reproduce.sparse_rows import shared
from attnlimit.sparse.oracle import log_likelihood_ratio, oracle_error, strength_needed
from attnlimit.sparse.quadrature import BagScores
from attnlimit.sparse.task import SparseTask

RULES = {
    "bayes": "best possible (Bayes)",
    "attention": "attention",
    "scan": "largest score alone",
    "pooled": "linear (mean pooling, all tokens)",
}
DRAWN = ("attention", "bayes", "pooled")
"""Rules that `drawn_error` applies."""
BLOCK = 2_000_000


def drawn_error(
    task: SparseTask, rule: str, draws: int, rng: np.random.Generator
) -> dict[str, float]:
    """Error on `draws` drawn bags of each class, weighted by the prior, and its standard error.

    Without draws, or for a rule that is not applied, both are NaN.
    """
    if not draws or rule not in DRAWN:
        return {"measured": np.nan, "stderr": np.nan}
    best = dict(oracle_error(task).details) if rule == "attention" else {}
    losses = []
    block = max(1, BLOCK // task.length)
    for start in range(0, draws, block):
        x = rng.standard_normal((min(block, draws - start), task.length), dtype=np.float32)
        lost = np.zeros(len(x))
        for label, weight in enumerate((1 - task.prior, task.prior)):  # of one noise
            x[:, : task.signals] += np.float32(task.strength * label)
            lost += weight * ((_score(x, task, best, rule) > 0) != label)
        losses.append(lost)
    loss = np.concatenate(losses)
    return {"measured": float(loss.mean()), "stderr": float(loss.std() / np.sqrt(draws))}


def _score(x: NDArray[np.float32], task: SparseTask, best: dict[str, float], rule: str) -> Array:
    """A score of rows of <X_l, xi> that is positive where the rule decides so."""
    odds, theta = np.log(task.prior / (1 - task.prior)), task.strength
    if rule == "pooled":
        shift = theta * task.signals / task.length
        return np.asarray(shift * task.length * (x.mean(axis=1) - shift / 2) + odds)
    if rule == "bayes" and task.signals == 1:
        top = x.max(axis=1, keepdims=True)
        total = np.exp(np.float32(theta) * (x - top)).mean(axis=1, dtype=np.float64)
        return np.log(total) + theta * (top[:, 0] - theta / 2) + odds
    if rule == "bayes":
        rows = len(x)
        bags = BagScores(np.ones(rows), x.astype(float), np.empty((rows, 0)), 0, np.zeros(rows))
        return log_likelihood_ratio(bags, task) + odds
    if np.isinf(best["sharpness"]):
        return np.asarray(x.max(axis=1) - best["threshold"])
    pooled = (softmax(np.float32(best["sharpness"]) * x, axis=1) * x).sum(axis=1)
    return np.asarray(pooled - best["threshold"])


def as_linear(name: str) -> str:
    """Return a column's name; mean pooling stands for every linear classifier."""
    return name.replace("pooled", "linear")


class Separation(Experiment):
    """Every rule at every length; bags up to `longest_drawn` are drawn, `draws` of each class."""

    name = "sparse-separation"
    title = "Sparse tokens: strength needed for 5 % error against the length, log L against sqrt L"
    paper = STC
    figure_of_paper = "theorem: log L, sqrt L"
    minutes = 2
    settings = {
        "error": 0.05,
        "signals": 1,
        "prior": 0.5,
        "lengths": [2**k for k in range(4, 21, 2)],
        "longest_drawn": 2**12,
        "draws": 20_000,
    }
    paper_settings = {
        "lengths": [2**k for k in range(4, 21)],
        "longest_drawn": 2**14,
        "draws": 200_000,
    }

    def shards(self, config: Config) -> list[Shard]:
        base = shared(config, "lengths", "longest_drawn")
        bags = [
            {**base, "length": length, "draws": base["draws"] * (length <= config["longest_drawn"])}
            for length in config["lengths"]
        ]
        return [{**shard, "rule": rule} for shard in bags for rule in RULES]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """The strength needed, and the error measured there on drawn bags."""
        rule, length, signals, prior = (shard[k] for k in ("rule", "length", "signals", "prior"))
        strength = strength_needed(shard["error"], length, rule, signals=signals, prior=prior)
        task, rng = SparseTask(length, signals, strength, prior), np.random.default_rng(seed)
        row = {"rule": rule, "length": length, "strength": strength, "quantity": "error"}
        measured = drawn_error(task, rule, shard["draws"], rng)
        return pd.DataFrame([{**row, "predicted": shard["error"], **measured}])

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        needed = curves.pivot(index="length", columns="rule", values="strength")
        lengths = needed.index.to_numpy(dtype=float)
        edge = np.sqrt(2 * np.log(lengths))
        margin = -float(ndtri(config["error"] / config["prior"]))
        law = f"sqrt(2 log L) + {margin:.2f}: its {config['error']:.0%} law"

        def line(rule: str, values: pd.Series[float], style: str = "line") -> Series:
            return Series(lengths, values, style, RULES[rule], rule)

        near = line("bayes", needed["bayes"]), line("attention", needed["attention"], "dashed")
        edges = (
            Series(lengths, edge, "dotted", "sqrt(2 log L)", REFERENCE),
            Series(lengths, edge + margin, "dashed", law, REFERENCE),
        )
        excess = [
            line(rule, 100 * (needed[rule] / needed["bayes"] - 1)) for rule in ("attention", "scan")
        ]
        x = "tokens in a bag, L"
        axes = {"x": x, "y_scale": "linear"}
        every = (*near, line("pooled", needed["pooled"]))
        return FigureSpec(
            f"Signal strength needed for {config['error']:.0%} error",
            (
                panel("all classifiers", every, "strength", x),
                panel("the logarithmic ones", (*near, *edges), "strength", **axes),
                panel("excess over the Bayes floor", excess, "excess strength, percent", **axes),
            ),
            columns=3,
            caption=(
                f"{config['signals']} signal token(s), prior {config['prior']:g}, the signal's "
                "direction known. Linear classifiers need strength growing like sqrt(L); attention "
                "stays close to the Bayes floor, which grows like sqrt(2 log L)."
            ),
        )

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        strength, measured, stderr = (
            curves.pivot(index="length", columns="rule", values=values)
            for values in ("strength", "measured", "stderr")
        )
        table = strength[list(RULES)].rename_axis(columns=None)
        for rule in DRAWN:
            table[f"{rule} error"], table[f"{rule} stderr"] = measured[rule], stderr[rule]
        table["sqrt(2 log L)"] = np.sqrt(2 * np.log(table.index))
        return table.rename(columns=as_linear).reset_index().dropna(axis="columns", how="all")

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        ends = curves["length"].min(), curves["length"].max()
        first, last = (where(curves, length=end).set_index("rule")["strength"] for end in ends)
        grown = last / first
        return [
            *super().remarks(config, curves),
            f"from L = {ends[0]} to {ends[1]} the strength grows {grown['bayes']:.2f} times "
            f"(Bayes), {grown['attention']:.2f} times (attention), {grown['pooled']:.0f} times "
            "(linear).",
        ]


EXPERIMENT = Separation()
