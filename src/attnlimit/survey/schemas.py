"""What is in the tables of a survey? Their columns and types, in one place."""

from __future__ import annotations

import pyarrow as pa

from attnlimit.budgets.head import SCHEMES
from attnlimit.budgets.longer import FACTORS

WHOLE, REAL, TRUTH, TEXT = pa.int64(), pa.float64(), pa.bool_(), pa.string()
PLACE = {"layer": WHOLE, "head": WHOLE}

PLANNED = ("target", "keys", "visible", "price", "dense_price", "predicted", "stderr", "next_text")
MEASURED = ("measured", "measured_stderr", "perplexity", "dense_perplexity", "same_token")
RUN = ("repeats", "unseen", *MEASURED)
"""What is known of a plan that was run."""


def _struct(types: dict[str, pa.DataType]) -> pa.StructType:
    return pa.struct(list(types.items()))


SCHEME_BUDGET = _struct(
    {"certified": WHOLE, "typical": WHOLE, "typical_reliable": TRUTH, "median_error": REAL}
)
SCHEMAS: dict[str, pa.Schema] = {
    name: pa.schema(list(columns.items()))
    for name, columns in {
        # One row a head: its horizon, the share of draws at its budget within epsilon, and how
        # its layer keeps keys and values.
        "heads": PLACE
        | dict.fromkeys(("horizon", "within"), REAL)
        | dict.fromkeys(("draws", "key_value_heads", "key_value_width"), WHOLE),
        # One row a head: its entry in a budget file (docs/plan.md).
        "budgets": PLACE
        | {
            "scheme": TEXT,
            "tokens": WHOLE,
            "stored": WHOLE,
            "kind": TEXT,
            "thinnable": TRUTH,
            "keep": TEXT,
            "sink": WHOLE,
            "sink_weight": REAL,
            "score_std": REAL,
            "frozen": REAL,
            "effective_tokens": REAL,
            "sees_all": TRUTH,
            "by_text": pa.list_(WHOLE),
            "held_out": REAL,
            "varies": TRUTH,
            "schemes": _struct(dict.fromkeys(SCHEMES, SCHEME_BUDGET)),
            "extrapolated": _struct(
                {f"{factor}x": _struct(dict.fromkeys(SCHEMES, WHOLE)) for factor in FACTORS}
            ),
        },
        # Relative root mean square error over all queries by "exact", "delta" and "measured", and
        # the local rate of the exact law.
        "curves": PLACE | {"law": TEXT, "n": WHOLE, "error": REAL, "stderr": REAL, "rate": REAL},
        # The median query's relative error with n tokens kept by each scheme.
        "schemes": PLACE | {"scheme": TEXT, "n": WHOLE, "error": REAL},
        # Histograms of the queries' score deviations ("deviation") and standardised scores
        # ("score").
        "scores": PLACE | {"quantity": TEXT, "value": REAL, "density": REAL},
        "influence": PLACE | {"position": WHOLE, "influence": REAL},
        "tokens": {"position": WHOLE, "token": TEXT},
        # One row a target of the model's output: the plan that keeps it, and for the target that
        # was asked what came out when it was run.
        "targets": {"measure": TEXT, "sampler": TEXT, "unseen": TRUTH, "trusted": TRUTH}
        | {"repeats": WHOLE}
        | dict.fromkeys((*PLANNED, *MEASURED), REAL),
        # One row a target and head: how it reads, and what that adds to the predicted error.
        "shares": PLACE
        | {"sampler": TEXT, "kv_head": WHOLE}
        | dict.fromkeys(("target", "keys", "contribution", "sensitivity", "kv_keys"), REAL),
        # The output's error against the keys read, "predicted" and "measured", by scheme; the
        # scheme "yardstick" is the first-order limit of independent choices of keys.
        "output": {"law": TEXT, "scheme": TEXT, "sampler": TEXT, "trusted": TRUTH}
        | dict.fromkeys(("keys", "visible", "error", "stderr"), REAL),
        # Why there is nothing on the output, if there is not.
        "refusals": {"reason": TEXT},
    }.items()
}
