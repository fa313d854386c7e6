"""A causal model on a long article: the error of each sampler, head by head."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from attnlimit.models.captured import CapturedHead
from attnlimit.models.curves import scheme_errors
from attnlimit.picture import FigureSpec, Series
from attnlimit.reproduce.compare import agreement, where
from attnlimit.reproduce.documents import NAMES, SAMPLERS, capture_of, source
from attnlimit.reproduce.experiment import TSC, Config, Experiment, Shard
from attnlimit.reproduce.panels import pairs, panel
from attnlimit.theory.one_query.population import population_law
from attnlimit.theory.one_query.sampler import sampler_law

SMALLEST = 1e-5
"""Smaller errors are drawn at this value, and not compared."""


class LongDocument(Experiment):
    """Relative root mean square errors over late queries, of five schemes."""

    name = "longdoc"
    title = "SmolLM2 on a 4096-token article: the best scheme of each head, predicted"
    paper = TSC
    minutes = 1
    takes_capture = True
    settings = source("smollm2", "Anarchism", 4096) | {
        "layers": [0, 3, 15, 22, 29],
        "heads": [0, 4, 8],
        "queries": 48,
        "n": [64, 128, 256, 512, 1024],
        "measured_n": 256,
        "replicates": 40,
    }
    paper_settings = {"layers": list(range(0, 30, 3)), "heads": list(range(9))}

    def shards(self, config: Config) -> list[Shard]:
        return [{**config, "layer": layer} for layer in config["layers"]]

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        capture, heads = capture_of(shard, layers=tuple(shard["layers"])), shard["heads"]
        queries = torch.linspace(len(capture) * 0.9, len(capture) - 1, shard["queries"]).long()
        frames = [
            _errors(capture[shard["layer"], head], queries, shard, child)
            for head, child in zip(heads, seed.spawn(len(heads)), strict=True)
        ]
        return pd.concat(frames, ignore_index=True)

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        head = ["layer", "head", "score_std", "first_token"]
        here = where(curves, n=config["measured_n"])
        wide = here.pivot_table("predicted", head, "scheme")[list(NAMES)].reset_index()
        wide["best"] = wide[list(NAMES)].idxmin(axis=1).map(NAMES)
        return wide.rename(columns=NAMES)

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        return [
            f"Errors at n = {config['measured_n']} of {config['tokens']} tokens (4-bit weights, "
            "dequantised; relative root mean square error over late queries).",
            agreement(curves[curves["measured"] > SMALLEST], "Heads and schemes"),
        ]

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        heads = curves.groupby(["layer", "head"], as_index=False).first()
        std, sink = heads["score_std"], heads["first_token"]
        sharp = std.where(sink < 0.3, 0.0)
        chosen = {"diffuse": std.argmin(), "sharp": sharp.argmax(), "sink": sink.argmax()}
        panels, x = [], f"keys kept of {config['tokens']}"
        shown = curves.assign(**curves[["predicted", "measured"]].clip(lower=SMALLEST))
        for kind, place in chosen.items():
            layer, head = heads[["layer", "head"]].to_numpy()[place]
            first = kind == "diffuse"  # its legend and axis serve all
            here = where(shown, layer=layer, head=head)
            series = pairs(here, "scheme", names=NAMES, legend=first)
            y = "relative error" if first else ""
            panels.append(panel(f"A {kind} head ({layer}, {head})", series, y, x))
        median = curves.groupby(["scheme", "n"])["predicted"].median()
        lines = [Series(median[key].index, median[key], "line", group=key) for key in NAMES]
        panels.append(panel("Median over the heads", lines, "", x))
        caption = (
            "Lines: exact laws. Points: measured. "
            "SmolLM2-135M-Instruct (4-bit weights, dequantised), late queries."
        )
        return FigureSpec(self.title, panels, 2, caption)


def _errors(
    head: CapturedHead, queries: torch.Tensor, shard: Shard, seed: np.random.SeedSequence
) -> pd.DataFrame:
    scores = head.scores(queries)
    weights = torch.softmax(scores, -1)
    norm = float(((weights @ head.v).norm(dim=1).square().mean()).sqrt())
    iid = population_law(scores, head.v, shard["n"]).mse.mean(axis=0)
    rows = []
    for k, n in enumerate(shard["n"]):
        rows.append(("iid", n, np.sqrt(iid[k]) / norm, np.nan, np.nan))
        for scheme in list(NAMES)[1:]:
            chosen, measured, stderr = SAMPLERS[scheme](n), np.nan, np.nan
            law = sampler_law(chosen, scores, head.v, queries).mse.mean()
            if n == shard["measured_n"]:
                child = seed.spawn(1)[0]
                squares, _ = scheme_errors(head, chosen, queries, shard["replicates"], child)
                measured = np.sqrt(squares.mean()) / norm
                stderr = squares.std(ddof=1) / len(squares) ** 0.5 / (2 * measured * norm**2)
            rows.append((scheme, n, np.sqrt(law) / norm, measured, stderr))
    frame = pd.DataFrame(rows, columns=["scheme", "n", "predicted", "measured", "stderr"])
    deviations = [row[torch.isfinite(row)].std() for row in scores]
    return frame.assign(
        layer=head.layer,
        head=head.head,
        score_std=float(torch.stack(deviations).median()),
        first_token=float(weights[:, 0].mean()),
    )


EXPERIMENT = LongDocument()
