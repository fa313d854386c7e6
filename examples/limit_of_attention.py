"""
The limit of infinitely many tokens
===================================

Attention over infinitely many tokens is the gradient of their cumulant generating function: lines.
Dots are attention over 100,000 drawn tokens. Laplace tokens have a limit only up to a bound on the
scores.
"""

import matplotlib.pyplot as plt
import numpy as np

import attnlimit as al

measures = {
    "Gaussian": al.Gaussian(dim=3, variance=1 / 3),
    "sphere": al.Sphere(3),
    "ball": al.Ball(3, radius=np.sqrt(5 / 3)),
    "cube": al.Cube(3),
    "signs": al.Signs(3, scale=np.sqrt(1 / 3)),
    "Laplace": al.Laplace(3, scale=np.sqrt(1 / 6)),
}
OFFSETS = {"sphere": 2, "signs": -9}
direction = np.array([2.0, 1.0, 0.5]) / np.linalg.norm([2.0, 1.0, 0.5])
head = al.Head(np.eye(3))
rng = np.random.default_rng(0)

_, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
for index, (name, tokens) in enumerate(measures.items()):
    longest = 2.5 if name == "Laplace" else 6.0
    sizes = np.linspace(0, longest, 100)
    queries = sizes[:, None] * direction
    limit = al.limit(head, tokens)(queries) @ direction
    ax.plot(sizes, limit, color=f"C{index}")
    end = (sizes[-1], limit[-1]) if name != "Laplace" else (1.25, 1.6)
    ax.annotate(name, end, (5, OFFSETS.get(name, -4)), textcoords="offset points")
    drawn = head(queries[::12], tokens.sample(100_000, rng)) @ direction
    ax.plot(sizes[::12], drawn, "o", color=f"C{index}", ms=4)
ax.set(xlim=(0, 6.9), ylim=(0, 2.2), xlabel="length of the query |Ax|")
ax.set(ylabel="output along the query", title="tokens of variance 1/3")
plt.show()
