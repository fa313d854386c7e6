"""How is a text shown with the influence of its tokens? One HTML page that needs nothing else."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnlimit.checks import Array

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #1a1a1a; background: #fff; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
.text { line-height: 1.9; } .text span { padding: .08em 0; border-radius: .15em; }
.key { display: flex; align-items: center; gap: .6rem; font-size: .85rem; color: #555; }
.bar { width: 12rem; height: .8rem; border-radius: .2rem; border: 1px solid #ddd; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #e5e5e5; }
th:first-child, td:first-child { text-align: left; } td.best { font-weight: 700; }
footer { margin-top: 2rem; font-size: .85rem; color: #666; }
"""
RED = (213, 94, 0)


def token_page(
    tokens: Sequence[str],
    influence: Array,
    kept: pd.DataFrame,
    *,
    title: str,
    source: str,
    notes: Sequence[str] = (),
) -> str:
    """Return a page with the text shaded by influence and the table of what keeping tokens costs.

    Shading is by rank, so that a few extreme tokens do not leave the rest white.
    """
    rank = np.argsort(np.argsort(influence)) / max(len(influence) - 1, 1)
    spans: list[str] = []
    for token, share, value in zip(tokens, rank, influence, strict=True):
        text, glued = _word(token)
        gap = "" if glued or not spans else " "
        shade = 0.85 * float(share) ** 2
        label = html.escape(f"{value:.4g}, above {share:.0%} of the tokens")
        spans.append(
            f'{gap}<span style="background:rgba{(*RED, round(shade, 3))}" title="{label}">'
            f"{html.escape(text)}</span>"
        )
    heading = html.escape(title)
    remarks = "".join(f" {html.escape(note)}." for note in notes)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{heading}</title><style>{STYLE}</style></head><body>
<h1>{heading}</h1>
<p class="key">least influential <span class="bar" style="background:linear-gradient(to right,
rgba{(*RED, 0)}, rgba{(*RED, 0.21)} 50%, rgba{(*RED, 0.85)})"></span> most influential
(point at a token for its number)</p>
<p class="text">{"".join(spans)}</p>
<h2>What keeping only n tokens costs</h2>
<p>Relative root mean square error of the outputs when every query sees only the same n tokens and
itself, measured. The weighted rules keep each token with a probability in proportion to its score
and divide its weight by that probability; the best rule for each n is bold.</p>
{_table(kept)}
<footer>Influence is |psi|, the first-order effect of a token on the mean output (attention it
receives is one part of it). {html.escape(source)}.{remarks}</footer>
</body></html>
"""


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


def _table(kept: pd.DataFrame) -> str:
    wide = kept.pivot(index="rule", columns="n", values="output_error")
    wide = wide.loc[list(dict.fromkeys(kept["rule"]))]
    head = "".join(f"<th>n = {n}</th>" for n in wide.columns)
    rows = []
    for rule, values in wide.iterrows():
        cells = "".join(
            f"<td{' class=best' if value == wide[n].min() else ''}>{value:.3f}</td>"
            for n, value in values.items()
        )
        rows.append(f"<tr><td>{html.escape(str(rule))}</td>{cells}</tr>")
    return f"<table><tr><th>kept by</th>{head}</tr>{''.join(rows)}</table>"
