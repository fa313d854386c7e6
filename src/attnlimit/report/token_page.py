"""Pages that shade a text by the influence of each token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnlimit.checks import Array
from attnlimit.report.page import document, escape

RED = (213, 94, 0)


def token_page(
    tokens: Sequence[str],
    influence: Array,
    *,
    title: str,
    source: str,
    notes: Sequence[str] = (),
) -> str:
    """Return a page with the text shaded by influence.

    Shading is by rank, so that a few extreme tokens do not leave the rest white.
    """
    rank = np.argsort(np.argsort(influence)) / max(len(influence) - 1, 1)
    spans: list[str] = []
    for token, share, value in zip(tokens, rank, influence, strict=True):
        text, glued = _word(token)
        gap = "" if glued or not spans else " "
        label = escape(f"{value:.4g}, above {share:.0%} of the tokens")
        spans.append(
            f'{gap}<span style="background:{_shade(float(share))}" title="{label}">'
            f"{escape(text)}</span>"
        )
    ramp = ", ".join(f"{_shade(share)} {share:.0%}" for share in (0.0, 0.5, 1.0))
    remarks = "".join(f" {escape(note)}." for note in notes)
    return document(
        title,
        f"""<header><h1>{escape(title)}</h1></header><main>
<p class="key">least influential <span class="ramp" style="background:linear-gradient(to right,
{ramp})"></span> most influential (point at a token for its number)</p>
<p class="passage" style="max-width:none;max-height:none">{"".join(spans)}</p></main>
<footer>Influence is |psi|, the first-order effect of a token on the mean output (attention it
receives is one part of it). {escape(source)}.{remarks}</footer>""",
    )


def _shade(share: float) -> str:
    return f"rgba{(*RED, round(0.85 * share**2, 3))}"


def _word(token: str) -> tuple[str, bool]:
    """A token's text and whether it continues the word before, in the usual tokenizer styles."""
    if token.startswith("##"):
        return token[2:], True
    for mark in ("\u0120", "\u2581"):  # byte-level BPE and SentencePiece mark a new word
        if token.startswith(mark):
            return token[1:] or " ", False
    if token in {"\u010a", "\n"}:
        return "\u21b5", True
    return token, len(token) == 1 and not token.isalnum()
