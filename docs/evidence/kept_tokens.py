"""Which tokens are worth keeping, by rule."""

from __future__ import annotations

import pandas as pd

from evidence.blocks import table
from evidence.cells import measured
from evidence.studies import Study

STUDY = "python studies/kept_tokens.py"
NAMES = {
    "influence": "largest influence",
    "recent": "most recent",
    "first and recent": "first 4 and recent",
}


def _errors(study: Study, model: str) -> pd.DataFrame:
    """A row for each rule, a column for each n, its smallest error in bold."""
    rows = study.table[study.table["model"] == model]
    shown = pd.DataFrame({"kept by": rows["rule"].drop_duplicates().replace(NAMES).tolist()})
    for n, one in rows.groupby("n"):
        best = one["output_error"].min()
        shown[f"n = {n}"] = [
            f"**{text}**" if error == best else text
            for error, stderr in one[["output_error", "output_error_stderr"]].to_numpy(float)
            for text in [measured(error, stderr)]
        ]
    return shown


@table(STUDY)
def tokens_kept_for_a_layer(study: Study) -> pd.DataFrame:
    """All heads of a layer of MiniLM, one set of tokens for all of them."""
    return _errors(study, "minilm")


@table(STUDY)
def tokens_kept_for_a_sink(study: Study) -> pd.DataFrame:
    """One causal head of SmolLM2 that looks at the first token."""
    return _errors(study, "smollm2")
