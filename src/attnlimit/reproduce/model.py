"""What does every head of a model need on a text? The numbers behind `demo`, `measure`, `plan`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch

from attnlimit import checks
from attnlimit.budgets import Plan, plan_from
from attnlimit.budgets.head import QUERIES, budget_from
from attnlimit.budgets.model import SCHEMA, shape_of
from attnlimit.budgets.promise import drawn_errors
from attnlimit.budgets.schemes import Queries, SchemeErrors, all_schemes
from attnlimit.budgets.terms import Terms
from attnlimit.errors import BadInput
from attnlimit.models import Capture, LoadedModel, capture, read_corpus
from attnlimit.models.heads.curves import measure_capture, predict_capture
from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.documents import model_named
from attnlimit.reproduce.experiment import Config, Experiment, Shard

NAME = "model"
TITLE = "Every head of a model on a text: error against n, budgets, influence"
SHOWN = 16
FEWEST = 8
PARTS = 4
PROMISE_DRAWS = 20
PROMISE_QUERIES = 64


def model_config(
    model: str = "minilm",
    text: str = "wikipedia:Anarchism",
    *others: str,
    tokens: int = 512,
    parts: int = PARTS,
    terms: Terms | None = None,
    layers: Sequence[int] | None = None,
    replicates: int = 100,
    seed: int = 0,
    pickled: str | None = None,
) -> Config:
    """Configuration of a run on the first `tokens` tokens of `text`, which it records as ids.

    Budgets are planned on more than those: on the next stretches of `text`, up to `parts` in all,
    and on as many of each of `others`. A budget belongs to a context, so that all stretches have
    one length, that of the shortest text if it has fewer than `tokens`.
    """
    if len({text, *others}) <= len(others):
        raise BadInput("The same text is given twice; each one counts as another text.")
    loaded = model_named(model, pickled)
    length = checks.count(tokens, "tokens", smallest=FEWEST)
    if loaded.positions is not None and length > loaded.positions:
        raise BadInput(
            f"{model} reads {loaded.positions} tokens at most, and {length} were asked for; "
            f"ask for --tokens {loaded.positions} or fewer."
        )
    texts = [_text(loaded, source) for source in (text, *others)]
    length = min(length, *(len(one["ids"]) for one in texts))
    wanted_parts = checks.count(parts, "parts", smallest=1)
    shown, *more = (
        {**one, "ids": ids, "part": part}
        for one in texts
        for part, ids in enumerate(_stretches(loaded, one["ids"], length, wanted_parts))
    )
    depth = int(loaded.model.config.num_hidden_layers)
    chosen = list(range(depth)) if layers is None else sorted({_layer(k, depth) for k in layers})
    wanted = Terms() if terms is None else terms
    return {
        "model": model,
        "pickled": pickled,
        "weights": loaded.weights,
        "weights_licence": loaded.licence,
        "notes": list(loaded.notes),
        **shown,
        "tokens": len(shown["ids"]),
        "others": more,
        "layers": chosen,
        "heads": int(loaded.model.config.num_attention_heads),
        "epsilon": wanted.epsilon,
        "delta": wanted.delta,
        "quantile": wanted.quantile,
        "queries": QUERIES,
        "replicates": checks.count(replicates, "replicates", smallest=2),
        "seed": checks.count(seed, "seed", smallest=0),
    }


def _layer(layer: int, depth: int) -> int:
    if not -depth <= layer < depth:
        raise BadInput(f"There is no layer {layer}: the model has {depth}, from 0.")
    return layer % depth


def _text(loaded: LoadedModel, source: str) -> Config:
    if loaded.tokenizer is None:
        raise BadInput(f"{loaded.name} has no tokenizer; give a model that reads text.")
    corpus = read_corpus(source)
    ids = [int(one) for one in loaded.tokenizer(corpus.joined(), verbose=False)["input_ids"]]
    if len(ids) < FEWEST:
        raise BadInput(f"The text {source!r} has {len(ids)} tokens; at least {FEWEST} are needed.")
    return {
        "text": source,
        "text_source": corpus.source,
        "text_licence": corpus.licence,
        "ids": ids,
    }


def _stretches(loaded: LoadedModel, ids: list[int], length: int, parts: int) -> list[list[int]]:
    """Cut a text into whole stretches, each begun and ended by the text's special tokens."""
    special = set(loaded.tokenizer.all_special_ids) if loaded.tokenizer is not None else set()
    start, end = (ids[:1] if ids[0] in special else []), (ids[-1:] if ids[-1] in special else [])
    body = ids[len(start) : len(ids) - len(end)]
    width = length - len(start) - len(end)
    count = min(parts, max(1, len(body) // width))
    return [[*start, *body[k * width : (k + 1) * width], *end] for k in range(count)]


@lru_cache(maxsize=1)
def _captured(
    model: str,
    pickled: str | None,
    weights: str,
    texts: tuple[tuple[int, ...], ...],
    layers: tuple[int, ...],
) -> tuple[Capture, ...]:
    loaded = model_named(model, pickled)
    if loaded.weights != weights:
        raise BadInput(
            f"The weights of {model} here have SHA-256 {loaded.weights[:12]}..., the run began "
            f"with {weights[:12]}...: every machine must have the same."
        )
    return tuple(capture(loaded, list(ids), layers=layers) for ids in texts)


def captures_for(config: Config) -> tuple[Capture, ...]:
    """Capture the texts that a run's configuration names, once in a process; its own first."""
    texts = [config["ids"], *(other["ids"] for other in config["others"])]
    return _captured(
        config["model"],
        config["pickled"],
        config["weights"],
        tuple(map(tuple, texts)),
        tuple(config["layers"]),
    )


def source_of(config: Config) -> dict[str, Any]:
    """What a plan says of where it comes from."""
    found = {key: config[key] for key in ("model", "weights", "text", "tokens")}
    stretches = [[config["text"], config["part"]]]
    stretches += [[other["text"], other["part"]] for other in config["others"]]
    return {**found, "stretches": stretches}


def _config(paper: bool) -> Config:
    return model_config(replicates=500 if paper else 100)


def _shards(config: Config) -> list[Shard]:
    return [
        {**config, "layer": layer, "head": head, "first": layer == config["layers"][0] and not head}
        for layer in config["layers"]
        for head in range(config["heads"])
    ]


def _compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    found, *others = captures_for(shard)
    place: dict[str, Any] = {"layer": shard["layer"], "head": shard["head"]}
    terms = Terms(shard["epsilon"], shard["delta"], shard["quantile"])
    texts = [
        Queries.of(one[shard["layer"], shard["head"]], shard["queries"]) for one in (found, *others)
    ]
    schemes = [all_schemes(seen) for seen in texts]
    budget = budget_from(texts, schemes, terms)
    queries = texts[0]
    number, draws = seed.generate_state(2)
    rows = [_record("budget", text=json.dumps(budget.to_dict()))]
    rows += _curves(found, queries, shard, int(number), place)
    rows += _scheme_rows(schemes[0])
    rows += _score_rows(queries)
    rows += [
        _record("influence", x=index, value=float(size))
        for index, size in enumerate(found.influence(shard["layer"], shard["head"]))
    ]
    few = Queries.of(queries.head, PROMISE_QUERIES)
    error = drawn_errors(few, budget.sampler(), PROMISE_DRAWS, np.random.SeedSequence(int(draws)))
    rows.append(_record("promise", value=float((error <= terms.epsilon).mean()), x=error.size))
    row = found.check_layer(shard["layer"])
    horizon = found.horizons()[list(found.layers).index(row), shard["head"]]
    rows.append(_record("horizon", value=float(horizon)))
    if shard["first"]:
        rows.append(_record("shape", text=json.dumps(shape_of(found))))
        rows += [_record("token", x=k, text=token) for k, token in enumerate(found.tokens)]
    return pd.DataFrame(rows).assign(**place)


def _record(
    part: str,
    name: str = "",
    x: float = 0.0,
    value: float = 0.0,
    stderr: float = 0.0,
    text: str = "",
) -> dict[str, Any]:
    return {"part": part, "name": name, "x": float(x), "value": value, "stderr": stderr,
            "text": text}  # fmt: skip


def _curves(
    found: Capture, queries: Queries, shard: Shard, seed: int, place: dict[str, Any]
) -> list[dict[str, Any]]:
    """Relative root mean square error over all queries: exact, delta, measured; and local rate."""
    context = len(found)
    measured_n = np.unique(np.geomspace(4, context, 6).astype(np.int64))
    grid = np.union1d(np.geomspace(2, context, SHOWN).astype(np.int64), measured_n)
    size = float(queries.head.output().double().square().sum(1).mean().sqrt())
    exact = predict_capture(found, "pointwise", grid, **place)
    delta = predict_capture(found, "pointwise", grid, method="delta", **place)
    drawn = measure_capture(found, "pointwise", measured_n, shard["replicates"], seed, **place)
    rows = []
    for curve, name in ((exact, "exact"), (delta, "delta"), (drawn, "measured")):
        for n, root, spread in zip(curve.n, curve.root, curve.root_stderr, strict=True):
            rows.append(_record("curve", name, n, root / size, spread / size))
    rows += [
        _record("curve", "rate", n, rate) for n, rate in zip(exact.n, exact.local_rate, strict=True)
    ]
    return rows


def _scheme_rows(schemes: dict[str, SchemeErrors]) -> list[dict[str, Any]]:
    rows = []
    for name, errors in schemes.items():
        wanted = np.geomspace(2, len(schemes["top-k"].n), SHOWN)
        places = np.unique(np.searchsorted(errors.n, wanted).clip(0, len(errors.n) - 1))
        for place in places[errors.n[places] <= len(schemes["top-k"].n)]:
            value = float(np.median(errors.error[:, place]))
            rows.append(_record("scheme", name, errors.n[place], min(value, 1e3)))
    return rows


def _score_rows(queries: Queries) -> list[dict[str, Any]]:
    """Histograms of the queries' score deviations, and of their standardised scores."""
    visible = queries.scores > -torch.inf
    counts = visible.sum(1, keepdim=True)
    filled = queries.scores.masked_fill(~visible, 0.0)
    centred = (filled - filled.sum(1, keepdim=True) / counts).masked_fill(~visible, 0.0)
    deviation = (centred.square().sum(1, keepdim=True) / counts).sqrt()
    standard = (centred / deviation.clamp_min(1e-12))[visible].numpy()
    rows = []
    for name, values, bins in (
        ("deviation", deviation[:, 0].numpy(), 24),
        ("score", standard, 48),
    ):
        density, edges = np.histogram(values, bins=bins, density=True)
        middle = (edges[:-1] + edges[1:]) / 2
        rows += [_record("scores", name, x, float(y)) for x, y in zip(middle, density, strict=True)]
    return rows


def _combine(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    return rows.drop(columns="shard")


def plan_of(config: Config, curves: pd.DataFrame) -> Plan:
    """Return the plan that a run found."""
    entries = curves[curves.part == "budget"]
    layers = [
        {"layer": int(layer), "heads": [json.loads(text) for text in part.text]}
        for layer, part in entries.groupby("layer")
    ]
    shape = json.loads(curves[curves.part == "shape"].text.iloc[0])
    return plan_from(
        {
            "schema": SCHEMA,
            "epsilon": config["epsilon"],
            "delta": config["delta"],
            "quantile": config["quantile"],
            "context": config["tokens"],
            "key_value_heads": shape["groups"],
            "key_value_width": shape["width"],
            "source": source_of(config),
            "layers": layers,
        }
    )


def _table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    table = plan_of(config, curves).layers()
    horizon = curves[curves.part == "horizon"].groupby("layer").value.median()
    kept = curves[curves.part == "promise"].groupby("layer").value.mean()
    table.insert(1, "H, median", horizon.to_numpy())
    return table.assign(**{"within epsilon": kept.to_numpy()})


def _remarks(config: Config, curves: pd.DataFrame) -> list[str]:
    gap = referee(curves)
    return [
        *str(plan_of(config, curves)).splitlines(),
        f"Exact law against measurement at {len(gap)} points: median distance "
        f"{gap.error.abs().median():.2%}, {(gap.deviations.abs() < 3).mean():.0%} within three "
        "standard errors.",
    ]


def referee(curves: pd.DataFrame) -> pd.DataFrame:
    """Measured errors beside the exact law at the same n."""
    rows = []
    for (layer, head), part in curves[curves.part == "curve"].groupby(["layer", "head"]):
        exact = part[part.name == "exact"].sort_values("x")
        drawn = part[part.name == "measured"]
        law = exact.set_index("x").value[drawn.x].to_numpy()
        rows.append(
            pd.DataFrame(
                {
                    "layer": layer,
                    "head": head,
                    "n": drawn.x.to_numpy(),
                    "error": (law / drawn.value).to_numpy() - 1,
                    "deviations": ((law - drawn.value) / drawn.stderr).to_numpy(),
                }
            )
        )
    return pd.concat(rows, ignore_index=True)


def _figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    frame = plan_of(config, curves).to_frame()
    horizon = curves[curves.part == "horizon"].sort_values(["layer", "head"]).value.to_numpy()
    frame = frame.sort_values(["layer", "head"]).assign(horizon=horizon)
    series = tuple(
        Series(part.horizon, part.tokens, "points", kind, group=kind)
        for kind, part in frame.groupby("kind")
    )
    panel = Panel("Tokens each head needs", "horizon H", "certified tokens, best scheme", series)
    caption = f"{config['model']} on {config['text']}, {config['tokens']} tokens."
    return FigureSpec(TITLE, (panel,), columns=1, caption=caption)


EXPERIMENT = Experiment(
    NAME, TITLE, _config, _shards, _compute, _combine, _figure, _table, _remarks
)
