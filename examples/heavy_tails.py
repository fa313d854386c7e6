"""
When there is no limit
======================

The participation E Σp² is large where a few keys hold the weight. It falls with n where a limit
exists (Gaussian tokens; Laplace tokens below their bound) and stays where it does not (Laplace
tokens past it). Points are drawn, lines exact.
"""

import matplotlib.pyplot as plt
import numpy as np

import attnlimit as al

n = 2 ** np.arange(4, 15, 2)
cases = {
    "Gaussian, deviation 1": (al.Gaussian(dim=1), 1.0),
    "Laplace at a fifth of its bound": (al.Laplace(1), 0.2),
    "Laplace past its bound, t = 2/b": (al.Laplace(1), 2.0),
}


def participation(tokens, scale, n, draws=200):
    """Mean of sum p^2 over draws, and its standard error."""
    rng = np.random.default_rng(n)
    scores = scale * tokens.sample(draws * n, rng)[:, 0].reshape(draws, n)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    drawn = (weights**2).sum(axis=1) / weights.sum(axis=1) ** 2
    return drawn.mean(), drawn.std(ddof=1) / np.sqrt(draws)


_, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
for index, (name, (tokens, scale)) in enumerate(cases.items()):
    mean, error = np.array([participation(tokens, scale, int(k)) for k in n]).T
    ax.errorbar(n, mean, error, fmt="os^"[index], color=f"C{index}", capsize=3, ms=4, label=name)
    if scale < 1.5:
        exact = al.pointwise_error(al.Head([[scale]]), tokens, [1.0], n)
        ax.plot(n, exact.participation[0], color=f"C{index}")
ax.axhline(0.5, color="C2", lw=1, ls="--", label="1 - 1/(bt), its limit")
ax.set(xscale="log", yscale="log", xlabel="number of tokens n", ylabel="participation E Σp²")
ax.legend(frameon=False, loc="lower left")
plt.show()

# Asking for the limit is refused, with the reason.
try:
    al.limit(al.Head([[2.0]]), al.Laplace(1))([1.0])
except al.NoLimitError as error:
    print(error)
