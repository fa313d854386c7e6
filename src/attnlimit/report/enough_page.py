"""How many instances of a bag are enough? A page with curves, numbers and what they mean."""

from __future__ import annotations

from attnlimit.picture import FigureSpec
from attnlimit.report.page import escape, scrolled, table
from attnlimit.report.run_page import figure_html, figures_document
from attnlimit.sparse import Enough

MEANINGS = {
    "feature error": "distance of the pooled feature from the one over all instances, root mean "
    "square, over how far apart the bags' pooled features are",
    "log-odds error": "root mean square change of the log-odds of a bag",
    "decision changed": "part of the bags that are decided otherwise than with all instances",
    "signal drawn": "chance that at least one instance is read that would make its bag positive "
    "alone, in bags that are decided to be positive",
}


def enough_figure(found: Enough) -> FigureSpec:
    """One panel for each quantity: lines predicted, points drawn."""
    quantities = found.to_frame()["quantity"].unique()
    panels = [found.panel(str(name)) for name in quantities]
    caption = "lines: predicted by exact laws; points: drawn"
    return FigureSpec("How many instances are enough", panels, columns=2, caption=caption)


def enough_page(found: Enough, title: str, command: str) -> str:
    """Return the page."""
    figure = enough_figure(found)
    frame = found.to_frame()
    answers = "".join(f"<li>{escape(one)}.</li>" for one in found.answers)
    asked = f"At most {found.change:.3g} of the decisions changed" if answers else ""
    words = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(MEANINGS.get(name, ''))}</dd>"
        for name in frame["quantity"].unique()
    )
    scored = (
        "Every bag is scored by a pooling that was fitted without it."
        if found.held_out
        else "Bags are scored by the pooling as it was given."
    )
    body = (
        f"<header><p class='eyebrow'>attnlimit · sparse enough</p><h1>{escape(title)}</h1>"
        f"<p>{found.bags} bags, {found.draws} draws of each. {scored}</p></header><main>"
        f"<section><h2>{escape(asked)}</h2><ul>{answers}</ul></section>"
        f"{figure_html(figure, 0)}"
        f"<section><h2>What is shown</h2><dl>{words}</dl></section>"
        f"<section><h2>Numbers</h2>{scrolled(table(frame), 'Numbers')}"
        "<p class='note'>stderr is over draws; bags_stderr is over bags, and says how far other "
        "bags of the same kind may differ.</p></section>"
        f"<section><h2>Do it again</h2><pre>{escape(command)}</pre></section>"
        "</main><footer></footer>"
    )
    return figures_document(title, body, [figure])
