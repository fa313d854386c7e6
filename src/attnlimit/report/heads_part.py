"""What does a page say of single heads? Their budgets, one level below the model's answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.budgets import HeadBudget, Plan
from attnlimit.budgets.head import SCHEMES
from attnlimit.picture import FigureSpec, Panel, Series
from attnlimit.report.page import cards_html, docs_link, escape, fill, scrolled, table
from attnlimit.survey import Survey

INFLUENCE_STEPS = 1000
PARTS = ("heads", "curves", "schemes", "scores", "influence")
"""The tables that say something of each head, beside its budget."""
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


def heads_section(survey: Survey, beside: Path) -> str:
    """Return what is known of each head by itself, folded away."""
    plan, frame = survey.plan, survey.heads
    stuck = int((~frame.thinnable).sum())
    transfer = plan.transfer()
    sentence = (
        f"A head that must keep its own output needs far more than the model does: half of the "
        f"heads need more than {frame.tokens.median():.0f} of {plan.context} tokens. "
        f"{promise(survey)}."
    )
    answer = (
        f"{len(frame) - stuck} of {len(frame)} heads can do with half of the text or less, if each "
        f"has the way of choosing keys that suits it best; the smallest budget is "
        f"{frame.tokens.min()} tokens, the largest {frame.tokens.max()}. "
        f"{transfer[0].upper()}{transfer[1:]}."
    )
    return fill(
        "heads.html",
        summary="What each head needs if it must keep its own output, and why; click a cell of the "
        "map to see its head here.",
        sentence=escape(sentence),
        answer=escape(answer),
        cards=cards_html(_cards(survey)),
        schemes_says=escape(_schemes_say(frame)),
        schemes_table=scrolled(table(_scheme_table(plan, local_name(survey))), "Budgets by scheme"),
        layers_table=scrolled(table(_layer_table(survey)), "Budgets by layer"),
        link_exact=docs_link("theory/exact-law.md", "the exact law", beside),
        link_regimes=docs_link("theory/regimes.md", "regimes", beside),
        link_budgets=docs_link("theory/budgets.md", "budgets", beside),
    )


def promise(survey: Survey) -> str:
    """Say what a head's budget promises, which is not the same for ways that draw nothing."""
    terms = survey.plan.terms
    return (
        f"With its budget, {terms.quantile:.0%} of a head's queries stay within "
        f"{terms.epsilon:.0%} of their full output, with a chance of "
        f"{1 - terms.delta:.0%} where keys are drawn at random and for sure where nothing is drawn"
    )


def _cards(survey: Survey) -> list[tuple[str, str]]:
    plan, frame, gap = survey.plan, survey.heads, survey.referee
    memory, within = plan.memory(), f"within {plan.terms.epsilon:.0%}"
    enough = int(frame.thinnable.sum())
    read, stored = (f"{part / memory.full:.0%}" for part in (memory.read, memory.stored))
    cards = [
        (f"{enough} / {len(frame)}", "heads that half of the tokens are enough for"),
        (read, "of the keys and values are read by a query, at each head's budget"),
        (stored, "would have to stay in memory if keys were deleted instead of skipped"),
        (f"{frame.within.mean():.1%}", f"of draws measured at budget stay {within}"),
        (
            f"{gap.error.abs().median():.1%}",
            f"median distance of the exact law from {len(gap)} measured points",
        ),
    ]
    if plan.texts > 1:
        steady = f"{sum(not head.varies for head in plan.heads)} / {len(frame)}"
        without = "heads whose budget holds on a passage it was planned without"
        cards.insert(-1, (steady, without))
    return cards


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


def heads_data(survey: Survey) -> dict[str, Any]:
    """Return what the page draws of each head."""
    tokens = survey.tables["tokens"].sort_values("position").token.tolist()
    cells = _cells(survey)
    tightest = np.array([cell["tokens"] for cell in cells])
    return {
        "epsilon": survey.plan.terms.epsilon,
        "tokens": tokens,
        "pieces": pieces(tokens),
        "local": local_name(survey),
        "cells": cells,
        # A head in the middle of the pack says more than the first one.
        "chosen": int(np.argsort(tightest, kind="stable")[len(tightest) // 4]),
    }


def local_name(survey: Survey) -> str:
    """Return what the local scheme keeps, which depends on where queries look."""
    return "first 4 + around the query" if survey.plan.heads[0].full else "first 4 + recent"


def _cells(survey: Survey) -> list[dict[str, Any]]:
    """One entry for each head, from its rows of every table."""
    tables = {
        name: dict(list(frame.groupby(["layer", "head"])))
        for name, frame in survey.tables.items()
        if name in PARTS
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
    names["not thinnable"] = "heads that need more than half"
    names |= {name: f"tokens, {name}" for name in ("median", "largest")}
    return survey.layers().drop(columns="within epsilon").rename(columns=names)
