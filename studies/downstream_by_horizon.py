"""Downstream accuracy by the horizon of texts and of thinned heads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from attnlimit.intervals import resampled_means
from attnlimit.models.captures import capture
from attnlimit.models.loading import load_once
from attnlimit.models.sampled import Samplers
from attnlimit.picture import FigureSpec, Panel, Series
from attnlimit.reproduce.compare import groups, where
from attnlimit.reproduce.downstream import (
    KEYS,
    QUESTIONS,
    Downstream,
    accuracy_panel,
    formatted,
    means_of,
    retrieval_task,
)
from attnlimit.reproduce.experiment import Config, Shard
from attnlimit.reproduce.panels import panel, points
from attnlimit.result import format_pm
from attnlimit.samplers import Iid
from tertiles import TERTILES, head_horizons, own_errors, tertiles

ALL = "all heads"
FITTED = 4
"""Smallest n of which a rate is fitted."""
LAWFUL = 8
"""One of so many texts has the exact law of its heads computed."""


class DownstreamByHorizon(Downstream):
    """I.i.d. keys in all heads by tertile of the text, and in a tertile of the heads alone."""

    name = "downstream-by-horizon"
    title = "Retrieval with i.i.d. keys, by the horizon of the text and of the sampled heads"

    settings = Downstream.settings | {"n": [1, 2, 4, 8, 16, 32], "predicted": 97}
    paper_settings = Downstream.paper_settings | {"predicted": 384}

    def schemes(self, config: Config) -> dict[str, list[int]]:
        sizes: list[int] = config["n"]
        return dict.fromkeys((ALL, *TERTILES), sizes)

    def samplers(self, scheme: str, n: int, config: Config) -> Samplers:
        if scheme == ALL:
            return Iid(n)
        chosen = tertiles(head_horizons(config)) == TERTILES.index(scheme)
        return {(int(layer), int(head)): Iid(n) for layer, head in np.argwhere(chosen)}

    def predict(self, shard: Shard, place: int, seed: int) -> pd.DataFrame:
        """Return the text's median horizon and, for a few texts, the exact law of the heads."""
        result = capture(load_once(shard["model"]), retrieval_task(shard).ids[place])
        horizon = float(np.median(result.horizons()))
        law = {}
        if place in self.predicted(shard)[::LAWFUL]:
            tertile, own = tertiles(head_horizons(shard)), own_errors(result, shard["n"])
            law = {name: own[tertile == k].mean(0) for k, name in enumerate(TERTILES)}
            law[ALL] = own.mean((0, 1))
        rows = [
            (scheme, n, horizon, law[scheme][k] if law else np.nan)
            for scheme, sizes in self.schemes(shard).items()
            for k, n in enumerate(sizes)
        ]
        return pd.DataFrame(rows, columns=["scheme", "n", "horizon", "predicted_loss"])

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        frames = []
        for what, parts in (("texts", _by_text(curves)), ("heads", _by_head(curves))):
            means = means_of(parts)
            shown = formatted(means).assign(predicted=means["predicted_loss"])
            frames.append(shown.assign(by=what))
        names = {"part": "tertile", "predicted": "heads' own error, predicted"}
        whole = pd.concat(frames, ignore_index=True).rename(columns=names)
        return whole[["by", *(name for name in whole if name != "by")]]

    def compared(self, config: Config, curves: pd.DataFrame) -> None:
        """Nothing: errors of heads and of the embedding share their shape, not their size."""

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        horizon = head_horizons(config)
        tertile = tertiles(horizon)
        medians = ", ".join(f"{np.median(horizon[tertile == k]):.2f}" for k in range(3))
        sentences = [f"Median horizon of the heads of the three tertiles: {medians}."]
        for name, some in _by_head(curves):
            rate, stderr, law = _rates(some)
            sentences.append(
                f"Heads of {name}: 1 - cosine falls as n to the power -{format_pm(rate, stderr)} "
                f"from n = {FITTED}, the heads' own squared error by their exact law -{law:.2f}."
            )
        sentences += [_still_lost(curves, key, config["n"]) for key in QUESTIONS]
        return [*sentences, _text_effect(curves)]

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        key, panels = next(iter(QUESTIONS)), []
        for what, parts in (("texts", _by_text(curves)), ("heads", _by_head(curves))):
            means, first = means_of(parts), what == "texts"
            title = f"{QUESTIONS[key].capitalize()}, by {what}"
            panels += [
                accuracy_panel(title, means, curves, key, legend=first),
                _errors(means, what),
            ]
        caption = (
            "MiniLM; tertiles of the median horizon over heads on each passage (by texts, all "
            "heads thinned), or of the horizon over passages of each head (by heads, only those "
            "thinned). Points: measured. Lines: squared error of the heads' own outputs over their "
            "squared size, by the exact law of i.i.d. keys, on the dense model's inputs"
        )
        return FigureSpec(self.title, panels, 2, caption)


def _by_text(curves: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    part = where(curves, scheme=ALL).dropna(subset=["horizon"])
    tertile = tertiles(part["horizon"].to_numpy())
    return ((name, part[tertile == k]) for k, name in enumerate(TERTILES))


def _by_head(curves: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    return ((name, where(curves, scheme=name)) for name in TERTILES)


def _rates(some: pd.DataFrame) -> tuple[float, float, float]:
    """Exponent of the measured error, its standard error, and that of the predicted one."""
    parts = [(n, part) for n, part in groups(some, "n") if n >= FITTED]
    x = np.log([n for n, _ in parts])
    means = np.log([part["loss"].mean() for _, part in parts])
    again = np.log(
        [resampled_means(part["loss"].to_numpy(), part["document"].to_numpy()) for _, part in parts]
    )
    law = np.log([part["predicted_loss"].mean() for _, part in parts])
    slopes = np.polyfit(x, np.column_stack([means, law, again]), 1)[0]
    return -float(slopes[0]), float(slopes[2:].std(ddof=1)), -float(slopes[1])


def _still_lost(curves: pd.DataFrame, question: str, sizes: list[int]) -> str:
    """How much of what is lost on the fewest keys is still lost on more, by the thinned heads."""
    few, more = min(sizes), sorted(sizes)[len(sizes) // 2]
    shares, errors = [], []
    for _, some in _by_head(curves):
        parts = [where(some, n=n) for n in (few, more)]
        lost = [(part[f"dense {question}"] - part[question]).to_numpy(float) for part in parts]
        if lost[0].mean() <= 0:
            return f"Nothing is lost with n = {few} where it is asked who {QUESTIONS[question]}."
        share = float(lost[1].mean() / lost[0].mean())
        drawn = [
            resampled_means(entry, part["document"].to_numpy())
            for entry, part in zip(lost, parts, strict=True)
        ]
        shares.append(share)
        errors.append((drawn[1] - share * drawn[0]) / lost[0].mean())
    listed = ", ".join(
        f"{format_pm(share, float(error.std(ddof=1)))} ({name})"
        for name, share, error in zip(TERTILES, shares, errors, strict=True)
    )
    apart = format_pm(shares[-1] - shares[0], float((errors[-1] - errors[0]).std(ddof=1)))
    return (
        f"Of the share that no longer {QUESTIONS[question]} with n = {few}, what is still lost "
        f"with n = {more}: {listed}; the last less the first, over the same texts, {apart}."
    )


def _text_effect(curves: pd.DataFrame) -> str:
    known = where(curves, scheme=ALL).dropna(subset=["horizon"])
    part = known.groupby("place")[["horizon", "loss"]].mean()
    rank = float(part.corr("spearman").to_numpy()[0, 1])
    return (
        f"Rank correlation over {len(part)} texts between their horizon and the error of their "
        f"embedding: {format_pm(rank, (1 - rank**2) / (len(part) - 2) ** 0.5)} (positive: a "
        "larger horizon loses more)."
    )


def _errors(means: pd.DataFrame, what: str) -> Panel:
    series = []
    for name, part in groups(means, "part"):
        known = part.dropna(subset=["predicted_loss"])
        series += [
            Series(known["n"], known["predicted_loss"], "line", None, name),
            points(part, "n", "loss", "loss stderr", None, name),
        ]
    return panel(f"Error, by {what}", series, "1 - cosine, or the heads' own error", KEYS)


EXPERIMENT = DownstreamByHorizon()
