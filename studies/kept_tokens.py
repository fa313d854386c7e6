"""Tokens kept for all queries of a layer or of a head.

python studies/kept_tokens.py

The error of the outputs, over their own size, by rule: what `attnlimit tokens` shows for one text.
"""

import pandas as pd

import attnlimit as al
from attnlimit.models.influence import selection_error
from tables import write_tables

SIZES = (16, 64, 256)
PLACES = (("minilm", 5, None, 512), ("smollm2", 15, 0, 300))  # model, layer, head, tokens

text = al.models.wikipedia()["Anarchism"].text
tables = []
for name, layer, head, tokens in PLACES:
    model = al.models.load(name)
    capture = al.models.capture(model, model.ids(text, tokens))
    result = selection_error(capture, layer, SIZES, head=head)
    columns = {"kept by": result["rule"].unique()}
    for size, part in result.groupby("n"):
        columns[f"n = {size}"] = part["output_error"].to_numpy()
        columns[f"n = {size}_stderr"] = part["output_error_stderr"].to_numpy()
    tables.append(pd.DataFrame(columns))
write_tables({"tokens-kept-for-a-layer": tables[0], "tokens-kept-for-a-sink": tables[1]})
