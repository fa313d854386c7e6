"""A draw is the same to the last bit, whichever other draws are measured with it."""

import numpy as np
import pandas as pd
import pytest

from attnlimit.reproduce import load
from studied import target

SMALLER = {
    "gaussian": {"n": [60, 130], "scales": [5.0]},
    "sphere": {"n": [60, 130], "scales": [100.0]},
    "clt": {"n": [30, 100]},
    "uniform": {"n": [30, 100]},
    "hardmax": {"n": [10, 50]},
    "heavy": {"n": [30, 100], "frozen_n": [10, 50], "laplace_n": [30, 100]},
}


def shards():
    for name, sizes in SMALLER.items():
        experiment = load(target(name))
        kinds = {}
        for shard in experiment.shards(experiment.config(False) | sizes):
            if "draws" in shard:
                kinds.setdefault(shard.get("kind"), shard)
        for kind, shard in kinds.items():
            yield pytest.param(experiment, shard, id=f"{name} {kind}")


@pytest.mark.parametrize(("experiment", "shard"), [*shards()])
def test_parts_of_a_shard_are_the_shard(experiment, shard):
    def rows(first, draws):
        seed = np.random.SeedSequence(0, spawn_key=(3,), n_children_spawned=first)
        return experiment.compute(shard | {"first": first, "draws": draws}, seed)

    whole, parts = rows(0, 6), [rows(0, 2), rows(2, 4)]
    pd.testing.assert_frame_equal(whole, pd.concat(parts, ignore_index=True), check_exact=True)
