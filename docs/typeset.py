"""Indices in running text, and column widths of wide tables.

In a paragraph, a docstring or a table `e^{-s_1}` is written as it is typed; displayed formulas are
TeX. Tables scroll in their own box, so a column of sentences need not be a word wide.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

BRACED = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
# The last letter of a word, or one before further indices: c_j c_k without the space.
LAST = r"(?:(?![A-Za-z\d_])|(?=(?:[^\W\d_]_[^\W\d_])+(?![A-Za-z\d_])))"
FORMAT = r"(?<=\d)_\d"  # of a cache, such as q8_0
RAISED = re.compile(
    rf"(?<=[^\s\\_^])(?!{FORMAT})([_^])"
    rf"({BRACED}|-?[\d½]+|-?[^\W\d_]{LAST}|[a-zA-Z\d]{{2}}{LAST}|[∞⊥+])"
)
NAMES = (
    nodes.literal, nodes.literal_block, nodes.FixedTextElement, nodes.math, nodes.math_block,
    nodes.raw, nodes.comment, nodes.strong, nodes.title_reference, nodes.reference,
    addnodes.pending_xref, addnodes.desc_signature, addnodes.literal_strong,
    addnodes.literal_emphasis,
)  # fmt: skip
SHORT, LONG = 14, 32
"""Characters up to which a cell is not broken, and from which it needs room."""


class Indices(SphinxTransform):
    """Sub- and superscripts in running text."""

    default_priority = 700

    def apply(self, **kwargs: Any) -> None:
        """Set every text that is not a name or code."""
        for text in list(self.document.findall(nodes.Text)):
            if RAISED.search(text) and not named(text):
                text.parent.replace(text, typeset(str(text)))


def named(text: nodes.Text) -> bool:
    """Whether a text is somebody's name for something."""
    node = text.parent
    while node is not None:
        if isinstance(node, NAMES):
            return True
        node = node.parent
    return False


def typeset(text: str) -> list[nodes.Node]:
    """Return a text with its indices lowered or raised, inner ones too."""
    made: list[nodes.Node] = []
    start = 0
    for mark in RAISED.finditer(text):
        made.append(nodes.Text(text[start : mark.start()]))
        kind = nodes.subscript if mark[1] == "_" else nodes.superscript
        inner = mark[2].removeprefix("{").removesuffix("}") if mark[2][0] == "{" else mark[2]
        made.append(kind("", "", *typeset(inner.replace("-", "−"))))
        start = mark.end()
    return [*made, nodes.Text(text[start:])]


class Columns(SphinxTransform):
    """A width for every column of a table, by what stands in it."""

    default_priority = 710

    def apply(self, **kwargs: Any) -> None:
        """Mark cells: short ones stay on a line, long ones have room."""
        for table in self.document.findall(nodes.table):
            rows = list(table.findall(nodes.row))
            for column in zip(*(row.children for row in rows), strict=False):
                longest = max(len(cell.astext()) for cell in column)
                how = "short" if longest <= SHORT else "long" if longest >= LONG else "medium"
                for cell in column:
                    cell["classes"].append(f"column-{how}")


def setup(app: Sphinx) -> dict[str, Any]:
    """Make both known."""
    app.add_transform(Indices)
    app.add_transform(Columns)
    return {"parallel_read_safe": True}
