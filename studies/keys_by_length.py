"""How many keys does a threshold read as the text grows? Expected from the dense model's scores.

python studies/keys_by_length.py ["sotu:Lincoln 1861"]
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from attnlimit.models.capture.dense import attend_dense, call_scores
from attnlimit.models.capture.encode import encode
from attnlimit.models.capture.interface import attention_as
from attnlimit.models.load.load import load_once
from attnlimit.reproduce.documents import passage

THRESHOLDS = (24, 48, 96, 192)
LENGTHS = (200, 400, 800, 1600, 2400, 4096)
QUERIES, EVERY = 100, 4


def main(text: str) -> None:
    """Print the table: one pass over the longest text gives every shorter one, causally."""
    model = load_once("smollm2")
    ids = passage("smollm2", text, LENGTHS[-1])
    read = np.zeros((len(THRESHOLDS), len(LENGTHS)))
    depth = model.model.config.num_hidden_layers

    def attention(call):
        for column, length in enumerate(LENGTHS):
            rows = slice(length - QUERIES, length, EVERY)
            weights = torch.softmax(call_scores(call, rows), -1)
            for row, c in enumerate(THRESHOLDS):
                kept = (c * weights).clamp_max(1).sum(-1).mean()
                read[row, column] += float(kept) / depth
        return attend_dense(call)

    with torch.no_grad(), attention_as(model.model, attention):
        model.model.base_model(**encode(model, ids).inputs, use_cache=False)
    print("| c | " + " | ".join(map(str, LENGTHS)) + " | longest over 400 |")
    for c, row in zip(THRESHOLDS, read, strict=True):
        growth = row[-1] / row[LENGTHS.index(400)]
        print(f"| {c} | " + " | ".join(f"{value:.1f}" for value in row) + f" | {growth:.2f} |")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sotu:Lincoln 1861")
