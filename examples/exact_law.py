"""
The exact law at every n
========================

Error of attention over n tokens at one query. Lines: the exact law, from n = 2 to 10¹². Dots: 1,000
draws. Dotted: the delta method, which is right only when no single key matters.
"""

import matplotlib.pyplot as plt
import numpy as np

import attnlimit as al

sigmas = [0.5, 2.0, 4.0, 6.0, 10.0]
n = np.unique(np.geomspace(2, 10**12, 60).astype(np.int64))
few = np.array([2, 8, 32, 128, 512, 2048])
rng = np.random.default_rng(0)


def drawn_error(sigma, n, draws=1000):
    """Root mean squared error along the query over many draws."""
    keys = rng.standard_normal((draws, n))
    weights = np.exp(sigma * (keys - keys.max(axis=1, keepdims=True)))
    outputs = (weights * keys).sum(axis=1) / weights.sum(axis=1)
    return np.sqrt(((outputs - sigma) ** 2).mean())


_, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
for index, sigma in enumerate(sigmas):
    color = f"C{index}"
    error = np.sqrt(al.gaussian_law(sigma, n).mse)
    ax.loglog(n, error, color=color)
    ax.annotate(f"σ = {sigma:g}", (n[-1], error[-1]), (5, -4), textcoords="offset points")
    ax.loglog(n, np.sqrt(np.exp(sigma**2) * (1 + sigma**2) / n), ":", color=color, lw=1)
    ax.loglog(few, [drawn_error(sigma, int(k)) for k in few], "o", color=color, ms=4)
ax.set(xlim=(1, 1e15), ylim=(1e-7, 30), xlabel="number of tokens n", ylabel="error along the query")
ax.set_title("σ: standard deviation of a query's scores; dotted: delta method", fontsize=10)
plt.show()
