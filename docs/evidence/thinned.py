"""Keys that a model reads: schemes_in_model.py, proxies.py and keys_by_length.py in studies."""

from __future__ import annotations

import pandas as pd

from evidence.blocks import table, value
from evidence.cells import numbers, pairs, percent, setting
from evidence.studies import Study

LENGTHS = "python studies/keys_by_length.py"


@table("python studies/schemes_in_model.py")
def schemes_in_the_model(study: Study) -> pd.DataFrame:
    """What schemes of as many keys do to the next token."""
    rows = study.table
    dense = rows["dense_perplexity"].iloc[0]
    return pd.DataFrame(
        {
            "scheme": rows["scheme"],
            "KL to the dense model, nats": pairs(rows, "kl", "kl_stderr"),
            f"perplexity (dense {dense:.2f})": rows["perplexity"].map("{:.2f}".format),
            "same most likely next token": rows["top1"].map(percent),
        }
    )


@table("python studies/proxies.py")
def thresholds_by_proxies(study: Study) -> pd.DataFrame:
    """KL of thresholds whose chances come from less than the keys."""
    rows = study.table
    told = pairs(rows, "predicted", "predicted_stderr")
    doubted = rows["trusted"].map({True: "", False: ", not to be trusted"})
    return pd.DataFrame(
        {
            "chances from": rows["chances"],
            "c": rows["c"].map(setting),
            "keys read": rows["keys"].map("{:.1f}".format),
            "KL predicted (± probes)": [a + b for a, b in zip(told, doubted, strict=True)],
            "measured (± draws)": pairs(rows, "measured", "measured_stderr"),
        }
    )


def _by_length(study: Study) -> pd.DataFrame:
    return study.table.pivot(index="c", columns="tokens", values="keys")


@table(LENGTHS)
def keys_by_length(study: Study) -> pd.DataFrame:
    """Keys that the last queries read as the text grows."""
    keys = _by_length(study)
    columns: dict[str, object] = {"c": list(map(setting, keys.index))}
    columns |= {f"N = {n}": keys[n].map("{:.1f}".format).tolist() for n in keys}
    growth = keys[keys.columns.max()] / keys[400]
    return pd.DataFrame(columns | {f"{keys.columns.max()} over 400": numbers(growth)})


@value(LENGTHS)
def growth_of_keys(study: Study) -> str:
    """How many more keys ten times the text takes."""
    keys = _by_length(study)
    more = keys[keys.columns.max()] / keys[400] - 1
    return f"{percent(more.min(), 0)} to {percent(more.max(), 0)}"
