"""
The best sharpness for n tokens
===============================

To find the furthest of n tokens, sharper is not always better: the hard maximum is noisy. The
best sharpness λ for each n, against schedules λ ~ log n and λ ~ √log n with their best constants.
"""

import matplotlib.pyplot as plt
import numpy as np

import attnlimit as al

n = 10 ** np.arange(1, 13, 2, dtype=np.int64)
_, panels = plt.subplots(1, 2, figsize=(8.8, 3.8), layout="constrained")
for ax, dim in zip(panels, (5, 50), strict=True):
    head, tokens, query = al.Head(np.eye(dim)), al.Sphere(dim), np.eye(dim)[0]
    best = al.best_temperature(head, tokens, query, n)
    ax.loglog(n, np.sqrt(best.hardmax_mse), ls=":", color="0.5", label="hard maximum, λ = ∞")
    for kind, label, style in (("sqrt-log", "√log n", "--"), ("log", "log n", "-")):
        error = al.schedule_error(head, tokens, query, n, kind=kind)
        ax.loglog(n, error.root, style, label=f"λ = {error.constant:.3g} {label}")
    ax.loglog(n, best.root, "o", color="k", ms=4, label="best λ for each n")
    ax.set(title=f"sphere, d = {dim}", xlabel="number of tokens n", ylabel="error of the output")
    ax.legend(frameon=False, fontsize=8, loc="lower left")
plt.show()
