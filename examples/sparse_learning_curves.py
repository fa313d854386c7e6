"""How many labelled bags do three classifiers need? Predicted lines, trained points."""

from pathlib import Path

import pandas as pd

from attnlimit import sparse
from attnlimit.report.figures import draw
from attnlimit.report.sparse_figures import curves_figure

task = sparse.SparseTask(length=10, signals=1, strength=5.0, prior=0.5)
query = sparse.query_alignment(task, alpha0=2.0)
print(query)

rows = []
for model in ("attention", "pooled", "vectorized"):
    setting = {"cosine": query.cosine, "sharpness": 1.0, "ridge": 1e-2}
    for result in sparse.learning_curve(task, [0.5, 1, 2, 4, 8], model, **setting):
        row = result.to_frame()
        if result.alpha <= 4:
            drawn = sparse.simulate_readout(
                task, result.alpha, model, dim=160, replicates=6, **setting
            )
            for name in ("test_error", "train_error"):
                row[f"{name}_measured"] = drawn.mean[name]
                row[f"{name}_stderr"] = drawn.stderr[name]
        rows.append(row)

curves = pd.concat(rows, ignore_index=True)
print(curves[["model", "alpha", "test_error", "test_error_measured", "test_error_stderr"]])
out = Path("gallery")
out.mkdir(exist_ok=True)
draw(curves_figure(curves, "One signal token in ten"), out, "sparse_learning_curves")
