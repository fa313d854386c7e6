"""What does a limit of large d miss at finite d? Settings that `FINITE` was not fitted on.

Trained classifiers at two small dimensions, many draws: the distance of the prediction from the
measurement, times d, over p (1 - p) of an error or over a loss. `FINITE` takes that number as one
deviation. The argument is the number of draws.
"""

import sys
from functools import partial

import numpy as np

from attnlimit.reproduce.sparse.rows import FINITE
from attnlimit.sparse import (
    SparseTask,
    query_alignment,
    readout,
    simulate_protocol,
    simulate_readout,
)

DRAWS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
DIMS = (30, 60)
SETTINGS = [  # length, signals, strength, prior | alpha | options
    ([7, 1, 3.5, 0.5], 2.5, {"cosine": 0.7, "ridge": 3e-2}),
    ([12, 2, 2.5, 0.4], 1.2, {"cosine": 0.9, "sharpness": 1.5, "ridge": 1e-2}),
    ([4, 1, 2.5, 0.6], 4.0, {"cosine": 0.3, "sharpness": 2.0, "ridge": 1e-1, "loss": "square"}),
    ([9, 1, 4.5, 0.5], 5.0, {"model": "pooled", "ridge": 1e-2}),
    ([4, 2, 1.5, 0.5], 2.0, {"model": "vectorized", "ridge": 1e-1}),
    ([8, 1, 4.0, 0.5], 3.0, {"alpha0": 3.0, "ridge": 1e-2}),
    ([10, 1, 5.0, 0.4], 2.0, {"alpha0": 1.5, "ridge": 1e-1}),
]

print("| setting | quantity |" + "".join(f" d = {d}: off × d | ± |" for d in DIMS))
print("|---|---|" + "---|---|" * len(DIMS))
found = []
for k, (task, alpha, options) in enumerate(SETTINGS):
    bags, alpha0 = SparseTask(*task), options.pop("alpha0", None)
    if alpha0 is None:
        told = readout(bags, alpha, **options)
        draw = partial(simulate_readout, bags, alpha, **options)
    else:  # the query takes two steps on bags of its own
        steps = query_alignment(bags, alpha0)
        told = readout(bags, alpha, cosine=steps.cosine, **options)
        draw = partial(simulate_protocol, bags, alpha0, alpha, lr_q=1 / steps.sharpness, **options)
    drawn = [draw(dim=d, replicates=DRAWS, seed=k) for d in DIMS]
    name = f"{told.model}, L {bags.length}, R {bags.signals}, strength {bags.strength:g}, "
    name += f"α {alpha:g}" + (f", α₀ {alpha0:g}" if alpha0 else "")
    for quantity in ("test_error", "train_loss", "train_error"):
        value = getattr(told, quantity)
        unit = value * (1 - value) if quantity.endswith("error") else value
        if unit < 0.01:
            continue
        cells = []
        for d, one in zip(DIMS, drawn, strict=True):
            off = d * (one.mean[quantity] - value) / unit
            error = d * one.stderr[quantity] / unit
            cells += [f"{off:+.2f}", f"{error:.2f}"]
            found.append((quantity, off, error))
        print("|", " | ".join([name, quantity.replace("_", " "), *cells]), "|", flush=True)
for quantity in dict.fromkeys(name for name, _, _ in found):
    off, error = np.array([two for name, *two in found if name == quantity]).T
    size = np.sqrt(max((off**2 - error**2).mean(), 0))
    print(f"{quantity}: root mean square {size:.2f}, largest {np.abs(off).max():.1f}", end="; ")
print(f"FINITE is {FINITE:g}")
