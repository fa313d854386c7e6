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
    # The standard deviation of a query's scores against the two transitions of Gaussian scores.
    deviation = np.linalg.norm(tokens.points(1 << 15) @ head.A.T @ tokens.sqrt_cov(), axis=1)
    frozen = (deviation > np.sqrt(2 * np.log(n))[:, None]).mean(axis=1)
    gaussian = (deviation < np.sqrt(2 * np.log(n))[:, None] / 2).mean(axis=1)
    ax.semilogx(n, gaussian, "-", label="average over many keys")
    ax.semilogx(n, 1 - gaussian - frozen, "--", label="depend on the few largest")
    ax.semilogx(n, frozen, ":", label="frozen: carried by a handful")
    ax.set(title=f"horizon {al.horizon(head, tokens):.2f}", xlabel="number of tokens n")
panels[0].set_ylabel("share of the queries")
panels[0].legend(fontsize="small")
plt.show()
