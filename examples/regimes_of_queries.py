"""
Queries that average and queries that freeze
============================================

A query with widely spread scores puts its weight on a handful of keys, however many there are: it
is frozen. The share of a head's queries that are, at n tokens. In 50 dimensions many are, far below
a horizon of 1.
"""

import matplotlib.pyplot as plt
import numpy as np

import attnlimit as al
from attnlimit.reproduce.temperatures import paper_head

tokens = al.Gaussian(dim=50, variance=0.1)
n = np.unique(np.geomspace(10, 10**9, 40).astype(np.int64))
_, panels = plt.subplots(1, 3, figsize=(9.6, 3.2), layout="constrained", sharey=True)
for ax, scale in zip(panels, (10, 20, 30), strict=True):
    head = paper_head(50, scale)
    al.regimes(head, tokens, n).plot(ax=ax)
    ax.set_title(f"horizon {al.horizon(head, tokens):.2f}")
    ax.set_ylabel("")
    ax.get_legend().set_visible(scale == 10)
panels[0].set_ylabel("share of the queries")
plt.show()
