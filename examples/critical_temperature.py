"""
From an average to the nearest key
==================================

As scores sharpen, a query averages over fewer of its keys, at last over one. On the sphere this
happens around β* ~ n^{2/(d-1)}. In three dimensions a hundred keys follow the limit law. In fifty
the nearest of n keys is far, and the exact law is not near its limit.
"""

import matplotlib.pyplot as plt
import numpy as np

import attnlimit as al

figure, panels = plt.subplots(1, 3, figsize=(10.4, 3.7), layout="constrained")
for ax, dim, low, high in zip(panels, (3, 10, 50), (0.05, 1, 8), (30, 60, 300), strict=True):
    theta = np.geomspace(low, high, 15)
    regimes = al.sphere_regimes(al.Sphere(dim), [100, 10**4, 10**12], theta)
    for i, name in enumerate(("10²", "10⁴", "10¹²")):
        ax.semilogx(theta, regimes.participation[:, i], color=f"C{i}", label=f"n = {name}, exact")
        ax.semilogx(theta, regimes.adapted.participation[:, i], ":", color=f"C{i}")
    ax.semilogx(theta, regimes.critical.participation[:, 0], "--", color="k", label="n → ∞")
    ax.plot([], [], ":", color="0.5", label="exponent that n keys see")
    ax.set(title=f"sphere, d = {dim}", xlabel="θ = β / β*", ylim=(0, 1))
panels[0].set_ylabel("participation E Σ p²")
lines, names = panels[0].get_legend_handles_labels()
figure.legend(lines, names, frameon=False, ncols=5, loc="outside lower center")
plt.show()
