"""What does one head of a model need on a text? Its rows in every table of a survey."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from attnlimit.budgets.head import budget_from
from attnlimit.budgets.model import shape_of
from attnlimit.budgets.promise import drawn_errors
from attnlimit.budgets.schemes import SchemeErrors, all_schemes
from attnlimit.budgets.seen import Queries
from attnlimit.models import Capture
from attnlimit.models.heads.curves import measure_capture, predict_capture
from attnlimit.models.heads.horizon import head_horizon
from attnlimit.survey.question import Question

SHOWN = 12
PROMISE_DRAWS = 20
PROMISE_QUERIES = 64
BINS = {"deviation": 24, "score": 48}

Row = dict[str, Any]


def survey_head(
    question: Question, layer: int, head: int, seed: np.random.SeedSequence
) -> dict[str, list[Row]]:
    """Predict, measure and budget a head: its rows of each of `SCHEMAS`."""
    captures = question.captures()
    shown = captures[0]
    texts = [Queries.of(one[layer, head], question.queries) for one in captures]
    schemes = [all_schemes(seen) for seen in texts]
    budget = budget_from(texts, schemes, question.terms)
    number, draws = (int(state) for state in seed.generate_state(2))
    few = Queries.of(texts[0].head, PROMISE_QUERIES)
    error = drawn_errors(few, budget.sampler(), PROMISE_DRAWS, np.random.SeedSequence(draws))
    shape = shape_of(shown)
    about = {
        "horizon": head_horizon(shown[layer, head]),
        "within": float((error <= question.terms.epsilon).mean()),
        "draws": error.size,
        "key_value_heads": shape["groups"],
        "key_value_width": shape["width"],
    }
    place = {"layer": layer, "head": head}
    tables: dict[str, Iterator[Row]] = {
        "heads": iter([about]),
        "budgets": iter([budget.to_dict()]),
        "curves": _curves(shown, texts[0], question.replicates, number, place),
        "schemes": _schemes(schemes[0]),
        "scores": _scores(texts[0]),
        "influence": (
            {"position": position, "influence": float(size)}
            for position, size in enumerate(shown.influence(layer, head))
        ),
    }
    found = {name: [place | row for row in rows] for name, rows in tables.items()}
    first = (layer, head) == (question.layers[0], 0)
    named = [{"position": position, "token": token} for position, token in enumerate(shown.tokens)]
    return {**found, "tokens": named if first else []}


def drawn_sizes(context: int) -> list[int]:
    """Return the n at which a head is measured."""
    return [int(n) for n in np.unique(np.geomspace(4, context, 6).astype(np.int64))]


def _curves(
    shown: Capture, queries: Queries, replicates: int, seed: int, place: Mapping[str, Any]
) -> Iterator[Row]:
    context = len(shown)
    measured_n = drawn_sizes(context)
    grid = np.union1d(np.geomspace(2, context, SHOWN).astype(np.int64), measured_n)
    size = float(queries.head.output().double().square().sum(1).mean().sqrt())
    exact = predict_capture(shown, "pointwise", grid, **place)
    delta = predict_capture(shown, "pointwise", grid, method="delta", **place)
    drawn = measure_capture(shown, "pointwise", measured_n, replicates, seed, **place)
    for law, curve in (("exact", exact), ("delta", delta), ("measured", drawn)):
        rates = curve.local_rate if curve is exact else np.full(len(curve.n), np.nan)
        for n, root, spread, rate in zip(
            curve.n, curve.root, curve.root_stderr, rates, strict=True
        ):
            yield {"law": law, "n": n, "error": root / size, "stderr": spread / size, "rate": rate}


def _schemes(schemes: Mapping[str, SchemeErrors]) -> Iterator[Row]:
    context = len(schemes["top-k"].n)
    for name, errors in schemes.items():
        places = np.searchsorted(errors.n, np.geomspace(2, context, SHOWN))
        places = np.unique(places.clip(0, len(errors.n) - 1))
        for place in places[errors.n[places] <= context]:
            median = float(np.median(errors.error[:, place]))
            yield {"scheme": name, "n": errors.n[place], "error": min(median, 1e3)}


def _scores(queries: Queries) -> Iterator[Row]:
    visible = queries.scores > -torch.inf
    counts = visible.sum(1, keepdim=True)
    filled = queries.scores.masked_fill(~visible, 0.0)
    centred = (filled - filled.sum(1, keepdim=True) / counts).masked_fill(~visible, 0.0)
    deviation = (centred.square().sum(1, keepdim=True) / counts).sqrt()
    standard = (centred / deviation.clamp_min(1e-12))[visible]
    for quantity, values in (("deviation", deviation[:, 0]), ("score", standard)):
        density, edges = np.histogram(values.numpy(), bins=BINS[quantity], density=True)
        middle = (edges[:-1] + edges[1:]) / 2
        for value, height in zip(middle, density, strict=True):
            yield {"quantity": quantity, "value": value, "density": height}
