"""Finite-dimension corrections on settings that `FINITE` was not fitted on.

Trained classifiers at two small dimensions: the distance of the measurement above the prediction,
times d, over p (1 - p) of an error or over a loss. `FINITE` (attnlimit.constants) takes
that number as one deviation. python studies/finite_dimension.py
"""

from functools import partial

import pandas as pd

from attnlimit.constants import FINITE
from attnlimit.sparse import (
    SparseTask,
    query_alignment,
    readout,
    simulate_protocol,
    simulate_readout,
)
from tables import write_tables

DRAWS = 400
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


def rows(number, task, alpha, options):
    """The distances of every quantity that is large enough to have one."""
    bags, alpha0 = SparseTask(*task), options.pop("alpha0", None)
    if alpha0 is None:
        predicted = readout(bags, alpha, **options)
        draw = partial(simulate_readout, bags, alpha, **options)
    else:  # the query takes two steps on bags of its own
        steps = query_alignment(bags, alpha0)
        predicted = readout(bags, alpha, cosine=steps.cosine, **options)
        draw = partial(simulate_protocol, bags, alpha0, alpha, lr_q=1 / steps.sharpness, **options)
    drawn = {dim: draw(dim=dim, replicates=DRAWS, seed=number) for dim in DIMS}
    setting = {"model": predicted.model, "length": bags.length, "signals": bags.signals}
    setting |= {"strength": bags.strength, "prior": bags.prior, "alpha": alpha, "alpha0": alpha0}
    for quantity in ("test_error", "train_loss", "train_error"):
        value = getattr(predicted, quantity)
        unit = value * (1 - value) if quantity.endswith("error") else value
        if unit < 0.01:
            continue
        for dim, entry in drawn.items():
            off = dim * (entry.mean[quantity] - value) / unit
            stderr = dim * entry.stderr[quantity] / unit
            yield {**setting, "quantity": quantity, "dim": dim, "off": off, "stderr": stderr}


if __name__ == "__main__":
    results = [row for number, setting in enumerate(SETTINGS) for row in rows(number, *setting)]
    write_tables(
        {"off-at-finite-dimension": pd.DataFrame(results).assign(finite=FINITE, draws=DRAWS)}
    )
