"""What does attention over infinitely many tokens give? The gradient of their CGF, token by law.

python examples/limit_of_attention.py [limit_of_attention.png]
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import attnlimit as al

MEASURES = {
    "Gaussian": al.Gaussian(dim=3, variance=1 / 3),
    "sphere": al.Sphere(3),
    "ball": al.Ball(3, radius=np.sqrt(5 / 3)),
    "cube": al.Cube(3),
    "signs": al.Signs(3, scale=np.sqrt(1 / 3)),
    "Laplace": al.Laplace(3, scale=np.sqrt(1 / 6)),
}


def main(path: Path) -> None:
    figure, axes = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    sizes = np.linspace(0, 6, 200)
    direction = np.array([2.0, 1.0, 0.5]) / np.linalg.norm([2.0, 1.0, 0.5])
    rng = np.random.default_rng(0)
    for index, (name, tokens) in enumerate(MEASURES.items()):
        inside = sizes * np.abs(direction).max() < (
            0.97 / tokens.scale if isinstance(tokens, al.Laplace) else np.inf
        )
        tilts = sizes[inside][:, None] * direction
        color = f"C{index}"
        axes.plot(sizes[inside], tokens.tilted_mean(tilts) @ direction, color=color, label=name)
        marks = tilts[:: max(1, len(tilts) // 8)]
        keys = tokens.sample(200_000, rng)
        drawn = al.Head(np.eye(3))(marks, keys) @ direction
        axes.plot(np.linalg.norm(marks, axis=1), drawn, "o", color=color, ms=4)
    axes.set_ylim(0, 2.2)
    axes.set_xlabel("length of the query's tilt |Ax|")
    axes.set_ylabel("output along the tilt")
    axes.set_title("Attention's infinite-token limit (lines) and 200,000 tokens (dots)")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, ncols=2, title="tokens of variance 1/3")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("gallery/limit_of_attention.png"))
