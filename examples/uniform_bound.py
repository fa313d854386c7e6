"""
The worst query of a ball
=========================

All queries at once: the proved bound on the largest error over a ball, the constant of one query
for large n, and the largest error of 20 draws over 500 queries of the rim.
"""

import matplotlib.pyplot as plt
import numpy as np

import attnlimit as al

head, n, radii = al.Head(np.eye(3)), 10_000, [0.5, 1.0, 2.0, 3.0]
cases = {"sphere": al.Sphere(3), "cube": al.Cube(3), "Gaussian": al.Gaussian(dim=3, variance=0.3)}
rng = np.random.default_rng(0)


def largest_error(tokens, radius, draws=20):
    """Largest error over queries of the rim: mean over draws, and its standard error."""
    rim = rng.standard_normal((500, 3))
    rim *= radius / np.linalg.norm(rim, axis=1, keepdims=True)
    limit = al.limit(head, tokens)(rim)
    errors = [head(rim, tokens.sample(n, rng)) - limit for _ in range(draws)]
    largest = [np.linalg.norm(error, axis=1).max() for error in errors]
    return np.mean(largest), np.std(largest, ddof=1) / np.sqrt(draws)


_, panels = plt.subplots(1, 3, figsize=(9.6, 3.4), layout="constrained", sharey=True)
for ax, (name, tokens) in zip(panels, cases.items(), strict=True):
    bounds = [al.uniform_bound(head, tokens, radius, [n]) for radius in radii]
    ax.semilogy(radii, [b.bound[0] for b in bounds], "s-", label="proved, probability 0.95")
    ax.semilogy(radii, [b.constant / np.sqrt(n) for b in bounds], "--", label="C(R)/√n")
    mean, error = np.array([largest_error(tokens, radius) for radius in radii]).T
    ax.errorbar(radii, mean, error, fmt="o", capsize=3, label="measured")
    ax.set(title=name, xlabel="radius R of the ball")
panels[0].set_ylabel(f"largest error at n = {n}")
panels[0].legend(frameon=False)
plt.show()
