"""Learning curves under other laws of scores, fitted to the same pilots.

The pilots are those of `studies/sparse_benchmarks.py`, whose run is read where the
evidence is, or made there first (a quarter of an hour). python studies/bag_shapes.py
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.special import ndtr

from attnlimit.bags import Bags, estimate
from attnlimit.bags.forecast import CUTS, STRENGTHS, LearningLaw, forecast
from attnlimit.bags.pilot import sharing_groups, stratified_folds
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.reproduce import run
from attnlimit.sparse import SparseTask
from sparse_benchmarks import EXPERIMENT, benchmark
from tables import PROJECT, write_tables

SETS = [
    "musk1",
    "musk2",
    "elephant",
    "ucsb_breast_cancer",
    "protein",
    "birds",
    "corel_dogs",
    "digits",
]
BANDWIDTH = 0.2
"""Of the smoothed empirical noise, in its standard deviations."""

Below = Callable[[Array], Array]
"""Chance that a score is below a number."""


def law(
    lengths: Array, prior: float, share: float, noise: Below, signal: Below, **how: bool
) -> LearningLaw:
    """Law of the largest score, over bags of these lengths with this share of signals."""
    quiet, shifted = noise(CUTS), signal(CUTS - STRENGTHS[:, None])
    wrong = np.zeros(shifted.shape)
    for length, bags in zip(*np.unique(lengths, return_counts=True), strict=True):
        if how.get("binomial"):
            none = (1 - share) ** length
            either = (1 - share) * quiet + share * shifted
            miss = (either**length - none * quiet**length) / (1 - none)
        else:
            many = max(1, round(share * length))
            miss = quiet ** (length - many) * shifted**many
        wrong += bags / len(lengths) * (prior * miss + (1 - prior) * (1 - quiet**length))
    errors = np.minimum.accumulate(np.minimum(wrong.min(axis=1), min(prior, 1 - prior)))
    task = SparseTask(max(1, round(float(np.mean(lengths)))), 1, 1.0, prior)
    return LearningLaw(task, "attention", np.arcsin(np.sqrt(np.maximum(errors, 0))))


def smoothed(points: Array) -> Below:
    """Distribution of standardised points, smoothed."""
    x = np.linspace(CUTS[0] - STRENGTHS[-1], CUTS[-1], 2000)
    some = np.quantile((points - points.mean()) / points.std(), (np.arange(2000) + 0.5) / 2000)
    heights = ndtr((x[:, None] - some) / BANDWIDTH).mean(axis=1)
    return lambda cut: np.interp(cut, x, heights)


def laws(pilot: Bags) -> dict[str, LearningLaw]:
    """All laws of one pilot, the one with nothing added first."""
    prior, lengths = float(np.mean(pilot.signs > 0)), pilot.lengths
    share, along = 1 / lengths.mean(), None
    try:
        result = estimate(pilot)
        share = max(share, result.signal_fraction)
        along = np.concatenate(result.whiten(pilot).of_class(-1)) @ result.direction
    except BadInput:
        pass
    alike = np.full(len(lengths), round(lengths.mean()))
    same = {
        "Gaussian scores, mean length": law(alike, prior, share, ndtr, ndtr),
        "the bags' own lengths": law(lengths, prior, share, ndtr, ndtr),
        "binomial number of signals": law(alike, prior, share, ndtr, ndtr, binomial=True),
        "signal a quarter as spread": law(alike, prior, share, ndtr, lambda x: ndtr(2 * x)),
        "signal four times as spread": law(alike, prior, share, ndtr, lambda x: ndtr(x / 2)),
    }
    if along is not None:
        noise = smoothed(along)
        same["empirical noise along the signal"] = law(alike, prior, share, noise, noise)
    return same


def main() -> None:
    made = run("sparse-benchmarks", out=PROJECT / "runs" / "evidence")
    curves, config = made.curves, made.config
    rows = []
    for index, shard in enumerate(EXPERIMENT.shards(config)):
        name = shard["set"]
        if name not in SETS:
            continue
        # the run's own pilots: an experiment's shards take their random numbers by their place
        rng = np.random.default_rng(np.random.SeedSequence(config["seed"], spawn_key=(index,)))
        bags = benchmark(name, shard["drawn"], rng)
        third = stratified_folds(bags.signs, 3, rng, sharing_groups(bags, 3))
        pilot = bags.subset(np.flatnonzero(third == 0))
        result = laws(pilot)
        mine = curves[(curves["set"] == name) & (curves["cut"] == shard["cut"])]
        mine = mine[mine["pooling"].str.contains("attention")]
        for pooling, part in mine.groupby("pooling"):
            seen, rest = (part[part["tested_on"] == where] for where in ("pilot", "rest"))
            many, last = int(seen["pilot"].iloc[0]), rest.iloc[0]
            angles = np.arcsin(np.sqrt((seen["measured"] * many + 0.375) / (many + 0.75)))
            sizes = seen["trained_on"].to_numpy(float)
            correlation = (1 + np.eye(len(sizes))) / 2
            rest_of = {"bags": many, "correlation": correlation, "overlap": 1.25, "dim": pilot.dim}
            for kind, entry in result.items():
                predicted = forecast([entry], sizes, angles.to_numpy(), **rest_of)
                low, middle, high = predicted.error(float(last["trained_on"]))
                inside = low <= last["measured"] <= high
                rows.append((index, pooling, kind, middle, last["measured"], inside, high))
    names = ["shard", "pooling", "law", "predicted", "measured", "inside", "high"]
    frame = pd.DataFrame(rows, columns=names)
    plain = frame.groupby(["shard", "pooling"])["predicted"].transform("first")
    frame["moved"] = np.log(frame["predicted"] / plain).abs()
    frame["gap"] = np.log(frame["measured"].clip(lower=1e-3) / frame["predicted"]) ** 2
    frame["half"] = np.log(frame["high"] / frame["predicted"])
    shown = frame.groupby("law", sort=False).agg(
        moved=("moved", "mean"), most=("moved", "max"), gap=("gap", "mean"),
        inside=("inside", "sum"), of=("inside", "size"), half_interval=("half", "mean"),
    )  # fmt: skip
    write_tables({"laws-of-scores": shown.assign(gap=np.sqrt(shown["gap"])).reset_index()})


if __name__ == "__main__":
    main()
