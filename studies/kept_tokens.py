"""Which n tokens of a text are worth keeping for all queries of a layer, or of a head?

python studies/kept_tokens.py

The error of the outputs, over their own size, by rule: what `attnlimit tokens` shows for one text.
"""

import pandas as pd

import attnlimit as al
from attnlimit.models.heads.selection import selection_error
from kept import keep

SIZES = (16, 64, 256)
PLACES = (("minilm", 5, None, 512), ("smollm2", 15, 0, 300))  # model, layer, head, tokens

text = al.models.wikipedia()["Anarchism"].text
parts = []
for name, layer, head, tokens in PLACES:
    model = al.models.load(name)
    capture = al.models.capture(model, model.ids(text, tokens))
    found = selection_error(capture, layer, SIZES, head=head)
    place = f"layer {layer}" if head is None else f"layer {layer}, head {head}"
    parts.append(found.assign(model=name, place=place, tokens=tokens))
keep(pd.concat(parts))
