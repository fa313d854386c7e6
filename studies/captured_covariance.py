"""Is the covariance of a captured head's outputs predicted within the error that is stated?

Seven heads of all-MiniLM-L6-v2, from even to sharp ones, on the first 128 tokens of an article: few
tokens and many, drawn with replacement. The argument is the number of draws.
"""

import sys

import pandas as pd

import attnlimit as al
from kept import keep

HEADS = ((0, 0), (1, 6), (2, 3), (2, 11), (3, 10), (4, 10), (5, 4))
TOKENS = 128
SIZES = [8, 384]

draws = int(sys.argv[1]) if len(sys.argv) > 1 else 6000
model = al.models.load("minilm")
text = al.models.wikipedia()["Anarchism"].text
capture = al.models.capture(model, model.ids(text, TOKENS))
parts = []
for layer, head in HEADS:
    law = al.predict(capture, "covariance", SIZES, layer=layer, head=head)
    drawn = al.measure(capture, "covariance", SIZES, draws, layer=layer, head=head)
    columns = {
        "layer": layer,
        "head": head,
        "n": SIZES,
        "draws": draws,
        "measured": drawn.value,
        "stderr": drawn.stderr,
        "predicted": law.value,
        "prediction_error": law.numerical_error,
    }
    parts.append(pd.DataFrame(columns))
keep(pd.concat(parts))
