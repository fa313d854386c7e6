"""
Test error against the number of labelled bags
==============================================

Test error of mean and attention pooling against the number of bags, predicted for infinite
dimension (lines) and trained at d = 120 (points).
"""

import matplotlib.pyplot as plt
import numpy as np

from attnlimit import sparse

task = sparse.SparseTask(length=10, signals=1, strength=5.0, prior=0.5)
query = sparse.query_alignment(task, alpha0=2.0)
how = {"attention": {"cosine": query.cosine, "sharpness": 1.0}, "pooled": {}}

_, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
for index, (model, options) in enumerate(how.items()):
    color, marker = f"C{index}", "os"[index]
    sparse.learning_curve(task, np.geomspace(0.4, 5, 8), model, **options).plot(ax=ax, color=color)
    for alpha in (0.5, 1.0, 2.0, 4.0):
        measured = sparse.simulate_readout(task, alpha, model, dim=120, replicates=5, **options)
        error, bar = measured.mean["test_error"], measured.stderr["test_error"]
        label = f"{model}: trained" if alpha == 0.5 else None
        ax.errorbar([alpha], [error], [bar], fmt=marker, color=color, ms=4, capsize=2, label=label)
ax.legend(frameon=False)
plt.show()
