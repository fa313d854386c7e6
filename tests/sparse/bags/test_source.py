import numpy as np
import pytest

from attnlimit.errors import BadInput
from attnlimit.sparse.bags.source import BagSource, Pool


def test_positive_bags_alone_hold_the_signal():
    pools = Pool(np.ones((3, 2)), np.zeros((5, 2)))
    bags = BagSource(pools, {"again": pools}, length=6, signals=2).draw(
        50, np.random.default_rng(0)
    )
    held = np.array([bag[:, 0].sum() for bag in bags.instances])
    assert (held == np.where(bags.labels > 0, 2, 0)).all()
    assert set(bags.labels) == {-1, 1}


def test_more_signals_than_instances_are_refused():
    pool = Pool(np.ones((1, 1)), np.ones((1, 1)))
    with pytest.raises(BadInput, match="holds only 3"):
        BagSource(pool, {}, length=3, signals=4)
