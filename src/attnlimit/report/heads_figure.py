"""How do tokens needed and horizon go together? A figure of every head of a model."""

from __future__ import annotations

from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.survey import Survey


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
