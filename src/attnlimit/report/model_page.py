"""What does a person see of a model's run? Its answer, a map of its heads, and why."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.budgets import Plan
from attnlimit.budgets.head import SCHEMES
from attnlimit.report.page import docs_link, document, escape, fill, provenance, scrolled, table
from attnlimit.reproduce.model import plan_of, referee

INFLUENCE_STEPS = 1000


def model_page(record: dict[str, Any], curves: pd.DataFrame, beside: Path) -> str:
    """Return the page of a run on a real model, to be written in the folder `beside`."""
    config = record["config"]
    plan = plan_of(config, curves)
    frame = plan.to_frame()
    data = page_data(config, curves, plan)
    gap = referee(curves)
    kept = curves[curves.part == "promise"].value.mean()
    title = config["text"].removeprefix("wikipedia:")
    context = plan.context
    stuck = int((~frame.thinnable).sum())
    median = f"{frame.tokens.median():.0f}"
    promise = f"{plan.terms.epsilon:.0%} of full attention, {1 - plan.terms.delta:.0%} of the time"
    sentence = (
        f"Half of {config['model']}’s heads need more than {median} of {context} tokens to stay "
        f"within {promise}."
    )
    memory, transfer = plan.memory(), plan.transfer()
    answer = (
        f"{len(frame) - stuck} of {len(frame)} heads can do with half of the text or less, if each "
        f"is thinned in its own way; the smallest budget is {frame.tokens.min()} tokens, the "
        f"largest {frame.tokens.max()}. {stuck} heads cannot be thinned by half. "
        f"{transfer[0].upper()}{transfer[1:]}."
    )
    cards = [
        (median, f"tokens of {context} for the median head, certified"),
        (f"{len(frame) - stuck} / {len(frame)}", "heads that half of the tokens are enough for"),
        (
            f"{memory.read / memory.full:.0%}",
            "of the keys and values are read by a query, at budget",
        ),
        (f"{memory.stored / memory.full:.0%}", "must be stored if tokens are dropped for good"),
        (f"{kept:.1%}", f"of draws measured at budget stay within {plan.terms.epsilon:.0%}"),
        *_transfer_card(plan),
        (
            f"{gap.error.abs().median():.1%}",
            f"median distance of the exact law from {len(gap)} measured points",
        ),
    ]
    body = fill(
        "model.html",
        eyebrow=escape(
            f"attnlimit · {config['model']} on {title} · {context} tokens · "
            f"{len(config['layers'])} layers × {config['heads']} heads"
            + (f" · budgets from {plan.texts} stretches" if plan.texts > 1 else "")
        ),
        sentence=escape(sentence),
        answer=escape(answer),
        cards="".join(
            f"<li><strong>{escape(a)}</strong><span>{escape(b)}</span></li>" for a, b in cards
        ),
        schemes_says=escape(_schemes_say(frame, plan)),
        schemes_table=scrolled(table(_scheme_table(plan, data["local"])), "Budgets by scheme"),
        layers_table=scrolled(table(_layer_table(plan, curves)), "Budgets by layer"),
        link_exact=docs_link("theory/exact-law.md", "The exact law", beside),
        link_regimes=docs_link("theory/regimes.md", "Regimes", beside),
        link_budgets=docs_link("theory/budgets.md", "Budgets", beside),
        commands=escape(_commands(config)),
        provenance=provenance(record),
        footer=escape(
            f"Weights: {config['model']} ({config['weights_licence']}), sha256 "
            f"{config['weights'][:16]}…{''.join('; ' + note for note in config['notes'])}. "
            f"Text: {config['text_source']} ({config['text_licence']}){_others(config)}. "
            "Budgets hold for the head's own output given its inputs; errors of thinned layers add "
            "up on the way through a model."
        ),
    )
    return document(f"{config['model']} on {title}: tokens needed", body, data, ["model.js"])


def page_data(config: dict[str, Any], curves: pd.DataFrame, plan: Plan) -> dict[str, Any]:
    """Everything the page draws."""
    tokens = curves[curves.part == "token"].sort_values("x").text.tolist()
    cells = [_cell(part) for _, part in curves.groupby(["layer", "head"])]
    tightest = np.array([cell["tokens"] for cell in cells])
    full = plan.heads[0].full
    return {
        "epsilon": plan.terms.epsilon,
        "context": plan.context,
        "layers": config["layers"],
        "heads": config["heads"],
        "tokens": tokens,
        "pieces": pieces(tokens),
        "local": "first 4 + around the query" if full else "first 4 + recent",
        "cells": cells,
        # A head in the middle of the pack says more than the first one.
        "chosen": int(np.argsort(tightest, kind="stable")[len(tightest) // 4]),
    }


def _cell(part: pd.DataFrame) -> dict[str, Any]:
    budget = json.loads(part[part.part == "budget"].text.iloc[0])
    exact = part[(part.part == "curve") & (part.name == "exact")].sort_values("x")
    rates = part[(part.part == "curve") & (part.name == "rate")].sort_values("x")
    some = rates.iloc[np.linspace(0, len(rates) - 1, 3).astype(int)]
    influence = part[part.part == "influence"].sort_values("x").value.to_numpy()
    top = max(float(influence.max()), 1e-300)
    measured = part[(part.part == "curve") & (part.name == "measured")].sort_values("x")
    return {
        "layer": part["layer"].iloc[0],
        "head": part["head"].iloc[0],
        "horizon": part[part.part == "horizon"].value.iloc[0],
        "tokens": budget["tokens"],
        "stored": budget["stored"],
        "scheme": budget["scheme"],
        "kind": budget["kind"],
        "thinnable": budget["thinnable"],
        "keep": budget["keep"],
        "std": budget["score_std"],
        "frozen": budget["frozen"],
        "effective": budget["effective_tokens"],
        "sink": budget["sink"],
        "sinkWeight": budget["sink_weight"],
        "byText": budget["by_text"],
        "heldOut": budget["held_out"],
        "varies": budget["varies"],
        "promise": part[part.part == "promise"].value.iloc[0],
        "schemes": budget["schemes"],
        "longer": budget["extrapolated"],
        "curve": {
            "exact": _series(exact),
            "delta": _series(part[(part.part == "curve") & (part.name == "delta")]),
            "measured": _series(measured) | {"e": measured.stderr.tolist()},
            "rate": [[int(n), rate] for n, rate in zip(some.x, some.value, strict=True)],
        },
        "schemeCurves": {
            name: _series(part[(part.part == "scheme") & (part.name == name)]) for name in SCHEMES
        },
        "scores": {
            name: _series(part[(part.part == "scores") & (part.name == name)])
            for name in ("deviation", "score")
        },
        "influence": np.rint(influence / top * INFLUENCE_STEPS).astype(int).tolist(),
    }


def _series(rows: pd.DataFrame) -> dict[str, list[float]]:
    ordered = rows.sort_values("x")
    return {"n": ordered.x.tolist(), "v": ordered.value.tolist()}


def pieces(tokens: list[str]) -> list[str]:
    """Tokens as a text shows them: word pieces joined, marks of a leading space made one."""
    if any(token.startswith("##") for token in tokens):
        return [token[2:] if token.startswith("##") else f" {token}" for token in tokens]
    marks = str.maketrans({"Ġ": " ", "▁": " ", "Ċ": "\n"})
    if any("Ġ" in token or "▁" in token for token in tokens):
        return [token.translate(marks) for token in tokens]
    return [f" {token}" for token in tokens]


def _transfer_card(plan: Plan) -> list[tuple[str, str]]:
    if plan.texts == 1:
        return []
    steady = sum(not head.varies for head in plan.heads)
    return [
        (
            f"{steady} / {len(plan.heads)}",
            "heads whose budget holds on a stretch of text it was planned without",
        )
    ]


def _others(config: dict[str, Any]) -> str:
    names = dict.fromkeys(other["text"] for other in config["others"])
    more = [name.removeprefix("wikipedia:") for name in names if name != config["text"]]
    return f"; budgets also from {', '.join(more)}" if more else ""


def _schemes_say(frame: pd.DataFrame, plan: Plan) -> str:
    counts = frame.best.value_counts()
    said = ", ".join(f"{name} for {count}" for name, count in counts.items())
    drawn = int((frame["sample"].notna()).sum())
    return (
        f"Fewest certified tokens: {said} of {len(frame)} heads. A plain random sample is "
        f"certified within the context for {drawn}. Top-k looks at every key's score to choose; it "
        "saves reading values, not the memory that holds the keys. Where nothing is drawn the "
        "error is known outright, so no certificate has to be paid for."
    )


def _scheme_table(plan: Plan, local: str) -> pd.DataFrame:
    names = {"sample": "random sample", "local": local, "top-k + sample": "top-k + weighted sample"}
    rows = []
    for scheme in SCHEMES:
        certified = [head.schemes[scheme].certified or plan.context for head in plan.heads]
        typical = [head.schemes[scheme].typical or plan.context for head in plan.heads]
        enough = sum(head.schemes[scheme].certified is not None for head in plan.heads)
        rows.append(
            {
                "scheme": names.get(scheme, scheme),
                "median certified": float(np.median(certified)),
                "median typical": float(np.median(typical)),
                "heads it can serve": enough,
                "best for": sum(head.best == scheme for head in plan.heads),
            }
        )
    return pd.DataFrame(rows)


def _layer_table(plan: Plan, curves: pd.DataFrame) -> pd.DataFrame:
    horizon = curves[curves.part == "horizon"].groupby("layer").value.median()
    found = plan.layers()
    found.insert(1, "horizon H, median", horizon.to_numpy())
    return found.rename(
        columns={
            "median": "tokens, median",
            "largest": "tokens, largest",
            "stored": "stored, median",
        }
    )


def _commands(config: dict[str, Any]) -> str:
    stretches = [config, *config["others"]]
    texts = dict.fromkeys(one["text"] for one in stretches)
    named = " ".join(f"--text {quote(text)}" for text in texts)
    parts = 1 + max(one["part"] for one in stretches)
    options = (
        f"--model {quote(config['model'])} {named} --tokens {config['tokens']} --parts {parts}"
    )
    promise = f"--epsilon {config['epsilon']:g} --delta {config['delta']:g}"
    return (
        f"attnlimit measure {options} {promise} --seed {config['seed']}\n"
        f"attnlimit plan {options} {promise} --budget budget.json\n"
        "attnlimit demo        # from nothing to this page"
    )
