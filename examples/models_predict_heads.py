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
places = [(layer, head) for layer in range(6) for head in range(12)]
roots = [al.predict(cap, "mean", n, layer=i, head=h, method="delta").root for i, h in places]
low, median, high = np.quantile(roots, [0.25, 0.5, 0.75], axis=0)
ax.plot(n, median, "--", label="all heads: median, by the delta method")
ax.fill_between(n, low, high, alpha=0.2, linewidth=0, label="all heads: middle half")
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
