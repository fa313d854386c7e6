"""
The mean output at the n one can run
====================================

All n tokens are queries and keys. The error of their mean output, from the two-query law (lines)
and drawn (points). Dotted: the central limit theorem. At a horizon H near 1 it is off by
multiples at every n that can be run.
"""

import matplotlib.pyplot as plt
import numpy as np

import attnlimit as al
from attnlimit.reproduce.temperatures import paper_head

tokens = al.Gaussian(dim=50, variance=0.1)
n = [250, 500, 1000]
line = np.unique(np.geomspace(200, 10_000, 8).astype(int))

_, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
for index, scale in enumerate((5, 20, 30)):
    head, color = paper_head(50, scale), f"C{index}"
    predicted = al.predict(head, tokens, "mean", line)
    measured = al.measure(head, tokens, "mean", n, replicates=12)
    name = f"H = {al.horizon(head, tokens):.2f}"
    predicted.plot(ax=ax, color=color, label=name)
    measured.plot(ax=ax, color=color, label="_measured")
    limit = np.sqrt(np.trace(al.mean_covariance(head, tokens)))
    ax.loglog(line, limit / np.sqrt(line), ":", color=color, lw=1)
ax.set_title("mean output: two-query law, measured, and central limit (dotted)")
plt.show()
