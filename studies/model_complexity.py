"""Keys that a model needs as its text grows, at fixed c and at fixed k.

The token sample complexity of a whole model: a causal model's error at a position depends on what
is before it alone, so one run over a long text has the errors of all shorter ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnlimit.checks import Array
from attnlimit.constants import KL_LIMIT
from attnlimit.models.loading import load_once
from attnlimit.models.passes import divergence, encode
from attnlimit.models.sampled import sampled_attention, shape_of
from attnlimit.picture import FigureSpec
from attnlimit.planning.target import third_order
from attnlimit.reproduce.compare import groups, where, with_uncertainty
from attnlimit.reproduce.documents import passage, weights
from attnlimit.reproduce.experiment import Config, Experiment, Shard
from attnlimit.reproduce.panels import DRAWN, pairs, panel
from attnlimit.samplers import Sampler, Threshold
from attnlimit.samplers.base import Draws
from attnlimit.samplers.spec import parse_sampler
from context_scaling import output_growth
from prediction_error import predicted_with_error

LAST = 100
"""Queries before a length whose keys are counted."""
BLOCK = 128
"""Positions whose chances are held at a time, and whose mean error counts as one of many."""
CASE = ["text", "sampler", "n"]


class Complexity(Experiment):
    """KL over a text of N tokens, and keys read by its last queries, against N."""

    name = "model-complexity"
    title = "Keys that a model needs as its text grows: the whole model's error and cost"

    def config(self, paper: bool) -> Config:
        return weights("smollm2") | {
            "texts": ["sotu:Lincoln 1861"] + ["wikipedia:Anarchism"] * paper,
            "samplers": ["threshold:96", "threshold:24", "top-k:64"],
            "n": [200, 400, 800, 1600, 2400, 4096],
            "far": [8192, 32768, 131072, 1048576],
            "from_tokens": 1024 if paper else 512,
            "probes": 4,
        }

    def shards(self, config: Config) -> list[Shard]:
        shared = {key: config[key] for key in ("model", "n", "far", "from_tokens", "probes")}
        laws = [
            entry for entry in config["samplers"] if isinstance(parse_sampler(entry), Threshold)
        ]
        result: list[Shard] = []
        for text in config["texts"]:
            if laws:
                result.append({**shared, "text": text, "samplers": laws, "predict": True})
            result += [
                {**shared, "text": text, "samplers": [entry], "predict": False}
                for entry in config["samplers"]
            ]
        return result

    def compute(self, shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
        """Predict all thresholds from a text's beginning, or run one sampler over all of it."""
        number = int(seed.generate_state(1)[0])
        rows = _predicted(shard, number) if shard["predict"] else _measured(shard, number)
        return pd.DataFrame(rows).assign(text=shard["text"])

    def combine(self, config: Config, rows: pd.DataFrame) -> pd.DataFrame:
        predicted = [*CASE, "predicted", "predicted_stderr", "numerical_error", "predicted_keys"]
        measured = [*CASE, "measured", "measured_stderr", "measured_keys"]
        known = rows["measured"].isna()
        both = rows.loc[known, predicted].merge(rows.loc[~known, measured], on=CASE, how="outer")
        actual, other = both["predicted_stderr"].fillna(0.0), both["measured_stderr"].fillna(0.0)
        order = [config["texts"].index(text) for text in both["text"]]
        return both.assign(stderr=np.hypot(actual, other), order=order).sort_values(
            ["order", "sampler", "n"], ignore_index=True
        )

    def with_errors(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        return predicted_with_error(curves, draws=2)  # the shortest has two blocks

    def table(self, config: Config, curves: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "text": curves["text"],
                "sampler": curves["sampler"],
                "N": curves["n"],
                "predicted KL": with_uncertainty(curves, "predicted", "predicted_stderr"),
                "measured KL": with_uncertainty(curves, stderr="measured_stderr"),
                "predicted keys": curves["predicted_keys"],
                "measured keys": curves["measured_keys"],
            }
        )

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        low, high = (
            min(config["n"], key=lambda n: abs(n - end)) for end in (400, max(config["n"]))
        )
        rows = []
        for (text, sampler), part in groups(curves, "text", "sampler"):
            ends = {n: where(part, n=n).iloc[0] for n in (low, high)}
            keys, kl = (
                ends[high][name] / ends[low][name] for name in ("measured_keys", "measured")
            )
            far = part.dropna(subset=["predicted"])
            beyond = (
                f"; {far['predicted_keys'].iloc[-1]:.0f} keys and {far['predicted'].iloc[-1]:.3g} "
                f"nats predicted at N = {far['n'].iloc[-1]}"
                if len(far)
                else ""
            )
            rows.append(
                f"{text}, {sampler}: from N = {low} to {high} keys read grow by a factor "
                f"{keys:.2f} and the KL by {kl:.2f}{beyond}."
            )
        return rows

    def figure(self, config: Config, curves: pd.DataFrame) -> FigureSpec:
        kl, keys = "KL of the next token, nats", "keys read by a query"
        panels = []
        for text, part in groups(curves, "text"):
            count = part.assign(
                predicted=part["predicted_keys"], measured=part["measured_keys"], stderr=np.nan
            )
            panels += [
                panel(f"{text}: error", pairs(part, "sampler"), kl, "length of the text, N"),
                panel(f"{text}: cost", pairs(count, "sampler"), keys, "length of the text, N"),
            ]
        caption = (
            f"SmolLM2, all heads; predicted from the first {config['from_tokens']} tokens; error: "
            f"mean over the text; cost: its last {LAST} queries; {DRAWN}"
        )
        return FigureSpec(self.title, panels, 2, caption)


def _predicted(shard: Shard, seed: int) -> list[dict[str, float | str]]:
    ids = passage(shard["model"], shard["text"], shard["from_tokens"])
    # of shorter texts the law says nothing: their keys are all among the recent ones
    lengths = [n for n in [*shard["n"], *shard["far"]] if n >= len(ids)]
    grid = np.unique(np.geomspace(16, max(lengths), 24).round()).astype(int).tolist()
    thresholds = [float(name.partition(":")[2]) for name in shard["samplers"]]
    law = output_growth(
        load_once(shard["model"]), ids, thresholds, grid, probes=shard["probes"], seed=seed
    )
    rows: list[dict[str, float | str]] = []
    for n in lengths:
        whole = law.over_text(n)
        spread = whole.std(1, ddof=1) / np.sqrt(shard["probes"])
        for index, name in enumerate(shard["samplers"]):
            read = np.interp(np.log(n), np.log(law.context), law.keys[index])
            kl = float(whole[index].mean())
            row = {
                "predicted": kl,
                "predicted_stderr": spread[index],
                "numerical_error": third_order(kl, KL_LIMIT),
                "predicted_keys": float(read),
            }
            rows.append({"sampler": name, "n": n, **row})
    return rows


def _measured(shard: Shard, seed: int) -> list[dict[str, float | str]]:
    name, tokens = shard["samplers"][0], max(shard["n"])
    model = load_once(shard["model"])
    counted = Counted(parse_sampler(name), torch.zeros(tokens, dtype=torch.long))
    first = _hidden(shard["model"], shard["text"], tokens)
    with torch.no_grad(), sampled_attention(model, counted, seed=seed):
        encoded = encode(model, passage(shard["model"], shard["text"], tokens))
        second = model.model.base_model(**encoded.inputs, use_cache=False).last_hidden_state[0]
    error = _kl(model.model.get_output_embeddings(), first, second)
    keys = counted.read.double().numpy() / np.prod(shape_of(model.model))
    return [
        {
            "sampler": name,
            "n": n,
            "measured": float(error[:n].mean()),
            "measured_stderr": _stderr(error[:n]),
            "measured_keys": float(keys[max(0, n - LAST) : n].mean()),
        }
        for n in shard["n"]
    ]


@lru_cache(maxsize=1)
def _hidden(model: str, text: str, tokens: int) -> Tensor:
    """Last hidden states of the dense model; its chances would not fit beside another's."""
    loaded = load_once(model)
    encoded = encode(loaded, passage(model, text, tokens))
    with torch.no_grad():
        result = loaded.model.base_model(**encoded.inputs, use_cache=False)
    return result.last_hidden_state[0]


@torch.no_grad()
def _kl(unembed: torch.nn.Module, first: Tensor, second: Tensor) -> Array:
    """KL of the next token at every position, a block at a time."""
    values = []
    for start in range(0, len(first), BLOCK):
        rows = slice(start, start + BLOCK)
        actual, other = (torch.log_softmax(unembed(states[rows]), -1) for states in (first, second))
        values.append(divergence(actual, other).double())
    return torch.cat(values).numpy()


def _stderr(error: Array) -> float:
    """Standard error of the mean of neighbours that may be alike, from means of blocks."""
    blocks = max(2, len(error) // BLOCK)
    means = [block.mean() for block in np.array_split(error, blocks)]
    return float(np.std(means, ddof=1) / np.sqrt(blocks))


@dataclass(frozen=True, eq=False)
class Counted(Sampler):
    """A sampler that counts the keys read by each query, all heads together."""

    sampler: Sampler
    read: Tensor  # (N,)

    @property
    def draws(self) -> Draws:
        return self.sampler.draws

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        return self.sampler.probabilities(scores, queries)

    def draw(self, scores: Tensor, queries: Tensor, generator: torch.Generator) -> Tensor:
        added = self.sampler.draw(scores, queries, generator)
        kept = (scores + added > -torch.inf).sum(-1)
        self.read.index_add_(0, queries, kept.reshape(-1, len(queries)).sum(0))
        return added


EXPERIMENT = Complexity()
