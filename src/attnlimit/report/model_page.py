"""What does a person see of a model's run? Its answer, a map of its heads, and why."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.budgets import HeadBudget, Plan
from attnlimit.budgets.head import SCHEMES
from attnlimit.picture import FigureSpec, Panel, Series
from attnlimit.report.page import docs_link, document, escape, fill, provenance, scrolled, table
from attnlimit.survey import Question, Survey

INFLUENCE_STEPS = 1000
SAME = "head tokens stored scheme kind thinnable keep frozen sink varies schemes"
ENTRY = {name: name for name in SAME.split()} | {
    "std": "score_std",
    "effective": "effective_tokens",
    "sinkWeight": "sink_weight",
    "byText": "by_text",
    "heldOut": "held_out",
    "longer": "extrapolated",
}
"""What the page's script calls the entries of a budget file."""


def model_page(record: dict[str, Any], survey: Survey, beside: Path) -> str:
    """Return the page of a run on a real model, to be written in the folder `beside`."""
    asked, plan, frame, gap = survey.question, survey.plan, survey.heads, survey.referee
    data = page_data(survey)
    shown = asked.stretches[0]
    title = asked.text.removeprefix("wikipedia:")
    context = plan.context
    stuck = int((~frame.thinnable).sum())
    median = f"{frame.tokens.median():.0f}"
    promise = f"{plan.terms.epsilon:.0%} of full attention, {1 - plan.terms.delta:.0%} of the time"
    sentence = (
        f"Half of {asked.model}’s heads need more than {median} of {context} tokens to stay "
        f"within {promise}."
    )
    memory, transfer, within = plan.memory(), plan.transfer(), f"within {plan.terms.epsilon:.0%}"
    answer = (
        f"{len(frame) - stuck} of {len(frame)} heads can do with half of the text or less, if each "
        f"is thinned in its own way; the smallest budget is {frame.tokens.min()} tokens, the "
        f"largest {frame.tokens.max()}. {stuck} heads cannot be thinned by half. "
        f"{transfer[0].upper()}{transfer[1:]}."
    )
    read, stored = (f"{part / memory.full:.0%}" for part in (memory.read, memory.stored))
    cards = [
        (median, f"tokens of {context} for the median head, certified"),
        (f"{len(frame) - stuck} / {len(frame)}", "heads that half of the tokens are enough for"),
        (read, "of the keys and values are read by a query, at budget"),
        (stored, "must be stored if tokens are dropped for good"),
        (f"{frame.within.mean():.1%}", f"of draws measured at budget stay {within}"),
        (
            f"{gap.error.abs().median():.1%}",
            f"median distance of the exact law from {len(gap)} measured points",
        ),
    ]
    if plan.texts > 1:
        steady = f"{sum(not head.varies for head in plan.heads)} / {len(frame)}"
        without = "heads whose budget holds on a stretch of text it was planned without"
        cards.insert(-1, (steady, without))
    body = fill(
        "model.html",
        eyebrow=escape(
            f"attnlimit · {asked.model} on {title} · {context} tokens · "
            f"{len(asked.layers)} layers × {asked.heads} heads"
            + (f" · budgets from {plan.texts} stretches" if plan.texts > 1 else "")
        ),
        sentence=escape(sentence),
        answer=escape(answer),
        cards="".join(
            f"<li><strong>{escape(a)}</strong><span>{escape(b)}</span></li>" for a, b in cards
        ),
        schemes_says=escape(_schemes_say(frame)),
        schemes_table=scrolled(table(_scheme_table(plan, data["local"])), "Budgets by scheme"),
        layers_table=scrolled(table(_layer_table(survey)), "Budgets by layer"),
        link_exact=docs_link("theory/exact-law.md", "The exact law", beside),
        link_regimes=docs_link("theory/regimes.md", "Regimes", beside),
        link_budgets=docs_link("theory/budgets.md", "Budgets", beside),
        commands=escape(_commands(asked)),
        provenance=provenance(record),
        footer=escape(
            f"Weights: {asked.model} ({asked.weights_licence}), sha256 "
            f"{asked.weights[:16]}…{''.join('; ' + note for note in asked.notes)}. "
            f"Text: {shown.source} ({shown.licence}){_others(asked)}. "
            "Budgets hold for the head's own output given its inputs; errors of thinned layers add "
            "up on the way through a model."
        ),
    )
    return document(f"{asked.model} on {title}: tokens needed", body, data, ["model.js"])


def heads_figure(survey: Survey) -> FigureSpec:
    """Certified tokens against the horizon, by kind of head."""
    asked = survey.question
    series = tuple(
        Series(part.horizon, part.tokens, "points", str(kind), group=str(kind))
        for kind, part in survey.heads.groupby("kind")
    )
    panel = Panel("Tokens each head needs", "horizon H", "certified tokens, best scheme", series)
    title = "Every head of a model on a text: error against n, budgets, influence"
    caption = f"{asked.model} on {asked.text}, {asked.tokens} tokens."
    return FigureSpec(title, (panel,), columns=1, caption=caption)


def page_data(survey: Survey) -> dict[str, Any]:
    """Everything the page draws."""
    asked, plan = survey.question, survey.plan
    tokens = survey.tables["tokens"].sort_values("position").token.tolist()
    cells = _cells(survey)
    tightest = np.array([cell["tokens"] for cell in cells])
    return {
        "epsilon": plan.terms.epsilon,
        "context": plan.context,
        "layers": asked.layers,
        "heads": asked.heads,
        "tokens": tokens,
        "pieces": pieces(tokens),
        "local": "first 4 + around the query" if plan.heads[0].full else "first 4 + recent",
        "cells": cells,
        # A head in the middle of the pack says more than the first one.
        "chosen": int(np.argsort(tightest, kind="stable")[len(tightest) // 4]),
    }


def _cells(survey: Survey) -> list[dict[str, Any]]:
    """One entry for each head, from its rows of every table."""
    tables = {
        name: dict(list(frame.groupby(["layer", "head"])))
        for name, frame in survey.tables.items()
        if name != "tokens"
    }
    return [
        _cell(budget, {name: parts[budget.layer, budget.head] for name, parts in tables.items()})
        for budget in survey.plan.heads
    ]


def _cell(budget: HeadBudget, rows: dict[str, pd.DataFrame]) -> dict[str, Any]:
    about, entry = rows["heads"].iloc[0], budget.to_dict()
    laws = {law: part.sort_values("n") for law, part in rows["curves"].groupby("law")}
    exact, measured = laws["exact"], laws["measured"]
    some = exact.iloc[np.linspace(0, len(exact) - 1, 3).astype(int)]
    influence = rows["influence"].sort_values("position").influence.to_numpy()
    top = max(float(influence.max()), 1e-300)
    return {
        "layer": budget.layer,
        "horizon": about.horizon,
        "promise": about.within,
        **{shown: entry[name] for shown, name in ENTRY.items()},
        "curve": {
            "exact": _series(exact, "n", "error"),
            "delta": _series(laws["delta"], "n", "error"),
            "measured": _series(measured, "n", "error") | {"e": measured.stderr.tolist()},
            "rate": [[n, rate] for n, rate in zip(some.n, some.rate, strict=True)],
        },
        "schemeCurves": {
            name: _series(part, "n", "error") for name, part in rows["schemes"].groupby("scheme")
        },
        "scores": {
            name: _series(part, "value", "density")
            for name, part in rows["scores"].groupby("quantity")
        },
        "influence": np.rint(influence / top * INFLUENCE_STEPS).astype(int).tolist(),
    }


def _series(rows: pd.DataFrame, x: str, y: str) -> dict[str, list[float]]:
    ordered = rows.sort_values(x)
    return {"n": ordered[x].tolist(), "v": ordered[y].tolist()}


def pieces(tokens: list[str]) -> list[str]:
    """Tokens as a text shows them: word pieces joined, marks of a leading space made one."""
    if any(token.startswith("##") for token in tokens):
        return [token[2:] if token.startswith("##") else f" {token}" for token in tokens]
    marks = str.maketrans({"Ġ": " ", "▁": " ", "Ċ": "\n"})
    if any("Ġ" in token or "▁" in token for token in tokens):
        return [token.translate(marks) for token in tokens]
    return [f" {token}" for token in tokens]


def _others(asked: Question) -> str:
    names = dict.fromkeys(one.text for one in asked.stretches)
    more = [name.removeprefix("wikipedia:") for name in names if name != asked.text]
    return f"; budgets also from {', '.join(more)}" if more else ""


def _schemes_say(frame: pd.DataFrame) -> str:
    said = ", ".join(f"{name} for {count}" for name, count in frame.best.value_counts().items())
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


def _layer_table(survey: Survey) -> pd.DataFrame:
    names = {"H, median": "horizon H, median", "stored": "stored, median"}
    names |= {name: f"tokens, {name}" for name in ("median", "largest")}
    return survey.layers().drop(columns="within epsilon").rename(columns=names)


def _commands(asked: Question) -> str:
    texts = dict.fromkeys(one.text for one in asked.stretches)
    named = " ".join(f"--text {quote(text)}" for text in texts)
    parts = 1 + max(one.part for one in asked.stretches)
    options = f"--model {quote(asked.model)} {named} --tokens {asked.tokens} --parts {parts}"
    promise = f"--epsilon {asked.terms.epsilon:g} --delta {asked.terms.delta:g}"
    return (
        f"attnlimit measure {options} {promise} --seed {asked.seed}\n"
        f"attnlimit plan {options} {promise} --budget budget.json\n"
        "attnlimit demo        # from nothing to this page"
    )
