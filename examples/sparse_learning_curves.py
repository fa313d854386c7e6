"""How many labelled bags do three classifiers need? Predicted lines, trained points."""

from pathlib import Path

from attnlimit import sparse
from attnlimit.report.figures import draw
from attnlimit.reproduce import run

task = {"length": 10, "signals": 1, "strength": 5.0, "prior": 0.5}
query = sparse.query_alignment(sparse.SparseTask(**task), alpha0=2.0)
print(query)

# The experiment `attnlimit reproduce sparse-curves`, at a setting of one's own.
setting = {"task": task, "cosine": query.cosine, "sharpness": 1.0, "ridge": 1e-2}
sizes = {"alphas": [0.5, 1.0, 2.0, 4.0], "lines": 8, "dim": 160, "replicates": 6}
result = run("sparse-curves", setting | sizes)

print(result.table[["model", "alpha", "test_error", "test_error measured", "test_error stderr"]])
out = Path("gallery")
out.mkdir(exist_ok=True)
draw(result.figure, out, "sparse_learning_curves")
