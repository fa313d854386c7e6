"""
A needle in a bag of tokens
===========================

The strength that a rare signal needs to be found with 5 % error. For means it grows like √L, for
attention like √log L.
"""

import matplotlib.pyplot as plt
import numpy as np

from attnlimit import sparse

lengths = 2 ** np.arange(4, 21, 4)
models = {
    "mean pooling, or any linear rule": ("pooled", "-"),
    "attention, infinitely sharp": ("scan", "--"),
    "best possible (Bayes)": ("bayes", "o"),
}
_, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
for name, (model, style) in models.items():
    needed = [float(sparse.strength_needed(0.05, int(length), model)) for length in lengths]
    ax.loglog(lengths, needed, style, label=name)
ax.set(xlabel="instances in a bag, L", ylabel="signal strength for 5 % error")
ax.legend(frameon=False)
plt.show()
