"""
The query after two gradient steps
==================================

After two steps on α₀ bags per dimension the query points at the signal up to C/α₀. Line: exact;
points: simulated.
"""

import matplotlib.pyplot as plt
import numpy as np

from attnlimit import sparse

task = sparse.SparseTask(length=10, signals=1, strength=4.0, prior=0.5)
line, few = np.geomspace(0.3, 30, 30), [0.5, 2.0, 8.0]
results = [sparse.query_alignment(task, alpha) for alpha in line]
drawn = [sparse.simulate_alignment(task, alpha, dim=200, replicates=8) for alpha in few]

_, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
ax.semilogx(line, [result.cosine for result in results], label="exact")
ax.semilogx(line, 1 - results[-1].constant / line, ":", label="1 - C/α₀")
means, bars = ([getattr(entry, what)["cosine"] for entry in drawn] for what in ("mean", "stderr"))
ax.errorbar(few, means, bars, fmt="o", capsize=2, label="two steps at d = 200")
ax.set(ylim=(0, 1), xlabel="bags per dimension α₀", ylabel="cosine of query and signal")
ax.legend(frameon=False)
plt.show()
