"""The strength that 5 % error takes, against the length: log L for attention, sqrt L for linear."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import ndtri

from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.sparse.rows import caption, keep, where, worst
from attnlimit.sparse.law.oracle import oracle_error, strength_needed
from attnlimit.sparse.task import SparseTask

MODELS = {
    "bayes": "best possible (Bayes)",
    "attention": "attention",
    "scan": "largest score alone",
    "pooled": "linear (mean pooling, all tokens)",
}
CHECKED = ("attention", "bayes", "pooled")


def config(paper: bool) -> Config:
    """Lengths 2^4 to 2^20; rules applied to drawn bags up to 2^12."""
    return {
        "error": 0.05,
        "log2_lengths": list(range(4, 21)) if paper else list(range(4, 21, 2)),
        "log2_checked": 14 if paper else 12,
        "draws": 200_000 if paper else 20_000,
    }


def shards(config: Config) -> list[Shard]:
    """One for each length and rule."""
    return [
        {
            "model": model,
            "length": 2**k,
            "error": config["error"],
            "draws": config["draws"] if k <= config["log2_checked"] and model in CHECKED else 0,
        }
        for k in config["log2_lengths"]
        for model in MODELS
    ]


def compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    """The strength needed, and the error measured there on drawn bags."""
    model, length = shard["model"], shard["length"]
    strength = strength_needed(shard["error"], length, model)
    measured, stderr = np.nan, np.nan
    if shard["draws"]:
        rng = np.random.default_rng(seed)
        measured, stderr = _drawn_error(SparseTask(length, 1, strength), model, shard["draws"], rng)
    row = {
        "model": model,
        "length": length,
        "strength": strength,
        "quantity": "error",
        "predicted": shard["error"],
        "measured": measured,
        "stderr": stderr,
    }
    return pd.DataFrame([row])


def _drawn_error(
    task: SparseTask, model: str, draws: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Error of the oracle rule on drawn scores, half of them positive."""
    rule = oracle_error(task) if model == "attention" else None
    wrong = np.zeros(2)
    block = max(1, 2_000_000 // task.length)
    for label in (0, 1):
        for start in range(0, draws, block):
            x = rng.standard_normal((min(block, draws - start), task.length))
            x[:, 0] += task.strength * label
            wrong[label] += np.sum(_positive(x, task, model, rule) != bool(label))
    rates = wrong / draws
    return float(rates.mean()), float(np.sqrt(np.sum(rates * (1 - rates) / draws)) / 2)


def _positive(x: np.ndarray, task: SparseTask, model: str, rule: object) -> np.ndarray:
    """Whether each row of scores is called positive."""
    if model == "pooled":
        return np.asarray(x.mean(axis=1) > task.strength / task.length / 2)
    top = x.max(axis=1, keepdims=True)
    if model == "bayes":
        log_sum = np.log(np.exp(task.strength * (x - top)).sum(axis=1)) + task.strength * top[:, 0]
        return np.asarray(log_sum - task.strength**2 / 2 > np.log(task.length))
    details = getattr(rule, "details", {})
    if not np.isfinite(details["sharpness"]):
        return np.asarray(top[:, 0] > details["threshold"])
    p = np.exp(details["sharpness"] * (x - top))
    return np.asarray((p * x).sum(axis=1) / p.sum(axis=1) > details["threshold"])


def figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    """Strength needed against length on two scales."""
    lengths = 2.0 ** np.array(config["log2_lengths"])
    needed = {model: where(curves, model=model).sort_values("length") for model in MODELS}
    strength = {model: part["strength"].to_numpy() for model, part in needed.items()}
    styles = {"bayes": "line", "attention": "dashed", "pooled": "line"}
    full = [
        Series(lengths, strength[model], style, MODELS[model], model)
        for model, style in styles.items()
    ]
    edge = np.sqrt(2 * np.log(lengths))
    zoom = (
        Series(lengths, strength["bayes"], "line", MODELS["bayes"], "bayes"),
        Series(lengths, strength["attention"], "points", MODELS["attention"], "attention"),
        Series(lengths, edge, "dotted", "sqrt(2 log L)", "edge"),
        Series(
            lengths,
            edge - ndtri(2 * config["error"]),
            "dashed",
            "sqrt(2 log L) + 1.28: its 5 % law",
            "edge",
        ),
    )
    excess = [
        Series(lengths, 100 * (strength[m] / strength["bayes"] - 1), "line", MODELS[m], m)
        for m in ("attention", "scan")
    ]
    x_label = "tokens in a bag, L"
    return FigureSpec(
        f"Signal strength needed for {config['error']:.0%} error",
        (
            Panel("all classifiers", x_label, "strength", tuple(full)),
            Panel("the logarithmic ones", x_label, "strength", zoom, y_scale="linear"),
            Panel(
                "excess over the Bayes floor",
                x_label,
                "excess strength, percent",
                tuple(excess),
                y_scale="linear",
                y_limits=(0.0, 0.06),
            ),
        ),
        columns=3,
        caption=caption(
            "One signal token, prior 1/2, the signal's direction known. Linear classifiers need "
            "strength growing like sqrt(L); attention stays within 0.1 % of the Bayes floor, which "
            "grows like sqrt(2 log L).",
            3,
        ),
    )


def table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    """Strength by length and rule, and errors measured there."""
    wide = curves.pivot(index="length", columns="model", values="strength")[list(MODELS)]
    wide.columns = [f"{m}" for m in MODELS]
    measured = curves.pivot(index="length", columns="model", values="measured")
    stderr = curves.pivot(index="length", columns="model", values="stderr")
    for model in CHECKED:
        wide[f"{model} error"] = measured[model]
        wide[f"{model} +-"] = stderr[model]
    return wide.reset_index()


def remarks(config: Config, curves: pd.DataFrame) -> list[str]:
    """Agreement of drawn bags, and the growth over the range."""
    first, last = curves["length"].min(), curves["length"].max()
    growth = {
        model: float(
            where(curves, model=model, length=last)["strength"].iloc[0]
            / where(curves, model=model, length=first)["strength"].iloc[0]
        )
        for model in ("bayes", "attention", "pooled")
    }
    return [
        worst(curves),
        f"from L = {first} to {last} the strength grows {growth['bayes']:.2f} times (Bayes), "
        f"{growth['attention']:.2f} times (attention), {growth['pooled']:.0f} times (linear).",
    ]


EXPERIMENT = Experiment(
    name="sparse-separation",
    title="Sparse tokens: strength needed for 5 % error against the length, log L against sqrt L",
    config=config,
    shards=shards,
    compute=compute,
    combine=keep,
    figure=figure,
    table=table,
    remarks=remarks,
)
