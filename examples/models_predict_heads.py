"""
Every head of MiniLM
====================

Error of the mean output against n: all 72 heads of this 6-layer BERT from one pass, and one of them
measured.
"""

import matplotlib.pyplot as plt
import numpy as np

import attnlimit as al

model = al.models.load("minilm")
text = al.models.wikipedia()["Anarchism"].text
ids = model.tokenizer(text, truncation=True, max_length=192)["input_ids"]
cap = al.models.capture(model, ids)

n = [16, 32, 64, 128, 256]
_, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
al.models.delta_curves(cap, n).plot(ax=ax)
predicted = al.predict(cap, "mean", n, layer=1, head=8)
measured = al.measure(cap, "mean", n, layer=1, head=8, replicates=60)
predicted.plot(measured, ax=ax, color="#D55E00", label="head (1, 8): two-query law")
ax.set_title("error of the mean output: all heads, and one of them")
plt.show()
horizons = cap.horizons()
print(
    "horizons of the heads: median",
    np.median(horizons).round(2),
    "largest",
    horizons.max().round(2),
)
