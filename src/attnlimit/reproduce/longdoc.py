"""A causal model on a long article: which scheme does each head want, and is that predicted?"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from attnlimit.models.capture.captured import CapturedHead
from attnlimit.models.heads.draws import scheme_errors
from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.documents import capture_of, source
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.samplers import Keep, Sampler, SinksAndRecent, TopK
from attnlimit.theory.law.population import population_law
from attnlimit.theory.law.sampler import sampler_law

TITLE = "SmolLM2 on a 4096-token article: the scheme that each head wants, predicted"
NAMES = {
    "iid": "i.i.d.",
    "recent": "4 sinks + recent",
    "recent+": "4 sinks + n/4 recent + weighted rest",
    "top": "top n",
    "top+": "top n/4 + weighted rest",
}


def _config(paper: bool) -> Config:
    return source("smollm2", "Anarchism", 4096) | {
        "seed": 0,
        "layers": list(range(0, 30, 3)) if paper else [0, 3, 15, 22, 29],
        "heads": list(range(9)) if paper else [0, 4, 8],
        "queries": 48,
        "n": [64, 128, 256, 512, 1024],
        "measured_n": 256,
        "replicates": 40,
    }


def _shards(config: Config) -> list[Shard]:
    return [{**config, "layer": layer} for layer in config["layers"]]


def _sampler(scheme: str, n: int) -> Sampler:
    quarter = n // 4
    if scheme == "recent":
        return SinksAndRecent(4, n - 4)
    if scheme == "recent+":
        return Keep(SinksAndRecent(4, quarter), sample=n - quarter - 4)
    if scheme == "top":
        return TopK(n)
    return Keep(TopK(quarter), sample=n - quarter)


def _compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    capture = capture_of(shard, layers=tuple(shard["layers"]))
    size = len(capture)
    queries = torch.linspace(size * 0.9, size - 1, shard["queries"]).long()
    frames = [
        pd.DataFrame(_head(capture[shard["layer"], head], queries, shard, child))
        for head, child in zip(shard["heads"], seed.spawn(len(shard["heads"])), strict=True)
    ]
    return pd.concat(frames, ignore_index=True)


def _head(
    head: CapturedHead, queries: torch.Tensor, shard: Shard, seed: np.random.SeedSequence
) -> list[dict[str, float | str]]:
    scores = head.scores(queries)
    finite = [row[torch.isfinite(row)] for row in scores]
    weights = torch.softmax(scores, -1)
    norm = float(((weights @ head.v).norm(dim=1).square().mean()).sqrt())
    about: dict[str, float | str] = {
        "layer": head.layer,
        "head": head.head,
        "score_std": float(torch.stack([row.std() for row in finite]).median()),
        "first_token": float(weights[:, 0].mean()),
    }
    iid = population_law(scores, head.v, shard["n"]).mse.mean(axis=0)
    rows = []
    for k, n in enumerate(shard["n"]):
        for scheme in NAMES:
            measured = stderr = np.nan
            if scheme == "iid":
                predicted = iid[k]
            else:
                chosen = _sampler(scheme, n)
                law = sampler_law(chosen, scores, head.v, queries)
                predicted = law.mse.mean()
                if n == shard["measured_n"]:
                    child = seed.spawn(1)[0]
                    found, _ = scheme_errors(head, chosen, queries, shard["replicates"], child)
                    measured = float(np.sqrt(found.mean()) / norm)
                    deviation = found.std(ddof=1) / len(found) ** 0.5
                    stderr = float(deviation / (2 * np.sqrt(found.mean()) * norm))
            rows.append(
                about
                | {
                    "scheme": scheme,
                    "n": n,
                    "predicted": float(np.sqrt(predicted) / norm),
                    "measured": measured,
                    "stderr": stderr,
                }
            )
    return rows


def _combine(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    return rows.drop(columns="shard")


def _table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    part = curves[curves.n == config["measured_n"]]
    wide = part.pivot_table(
        index=["layer", "head", "score_std", "first_token"], columns="scheme", values="predicted"
    )[list(NAMES)]
    wide = wide.reset_index()
    wide["best"] = wide[list(NAMES)].idxmin(axis=1).map(NAMES)
    return wide.rename(columns=NAMES)


def _remarks(config: Config, curves: pd.DataFrame) -> list[str]:
    part = curves[curves.measured.notna() & (curves.measured > 1e-6)]
    gap = (part.predicted / part.measured - 1).abs()
    note = "4-bit weights, dequantised; relative root mean square error over late queries"
    return [
        f"Errors at n = {config['measured_n']} of {config['tokens']} tokens ({note}).",
        f"Predicted against measured over {len(part)} head-scheme pairs: median "
        f"{gap.median():.1%}, worst {gap.max():.1%} (median noise "
        f"{(part.stderr / part.measured).median():.1%}).",
    ]


def _figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    heads = curves.groupby(["layer", "head"]).first().reset_index()
    diffuse = heads.loc[heads.score_std.idxmin()]
    sink = heads.loc[heads.first_token.idxmax()]
    sharp = heads.loc[heads[heads.first_token < 0.3].score_std.idxmax()]
    panels: list[Panel] = []
    for kind, row in (("diffuse", diffuse), ("sharp", sharp), ("sink", sink)):
        part = curves[(curves.layer == row.layer) & (curves["head"] == row["head"])]
        series = []
        for scheme, name in NAMES.items():
            chosen = part[part.scheme == scheme]
            shown = chosen.predicted.clip(lower=1e-5)
            label = name if not panels else None
            series.append(Series(chosen.n, shown, "line", label, group=scheme))
            dots = chosen[chosen.measured.notna()]
            series.append(
                Series(dots.n, dots.measured.clip(lower=1e-5), "points", None, group=scheme)
            )
        panels.append(
            Panel(
                f"A {kind} head ({row.layer:.0f}, {row['head']:.0f})",
                f"keys kept of {config['tokens']}",
                "relative error" if not panels else "",
                tuple(series),
            )
        )
    median = curves.groupby(["scheme", "n"]).predicted.median()
    panels.append(
        Panel(
            "Median over the heads",
            f"keys kept of {config['tokens']}",
            "",
            tuple(
                Series(median[scheme].index, median[scheme], "line", group=scheme)
                for scheme in NAMES
            ),
        )
    )
    return FigureSpec(
        TITLE,
        tuple(panels),
        columns=2,
        caption="Lines: exact laws. Points: measured. "
        "SmolLM2-135M-Instruct (4-bit weights, dequantised), late queries.",
    )


EXPERIMENT = Experiment(
    "longdoc", TITLE, _config, _shards, _compute, _combine, _figure, _table, _remarks
)
