import numpy as np
import pytest

from attnlimit.errors import BadInput
from bag_sources import BagSource, Pool


def test_positive_bags_alone_hold_the_signal():
    pools = Pool(np.ones((3, 2)), np.zeros((5, 2)))
    bags = BagSource(pools, {"again": pools}, length=6, signals=2).draw(
        50, np.random.default_rng(0)
    )
    held = np.array([bag[:, 0].sum() for bag in bags.instances])
    assert (held == np.where(bags.labels > 0, 2, 0)).all()
    assert set(bags.labels) == {-1, 1}


def test_bags_drawn_apart_share_no_instance():
    train = Pool(np.array([[1.0], [2.0]]), -1.0 - np.arange(20.0)[:, None])
    source = BagSource(train, {"again": Pool(np.array([[2.0], [3.0]]), train.others)}, length=4)
    bags = source.draw_apart(100, np.random.default_rng(0))
    assert len(bags) == 4  # seven others for each pair of bags
    assert bags.shared == 0
    held = np.array([(bag > 0).sum() for bag in bags.instances])
    assert (held == (bags.labels > 0)).all()
    assert len(source.draw_apart(2, np.random.default_rng(0))) == 2


def test_more_signals_than_instances_are_refused():
    pool = Pool(np.ones((1, 1)), np.ones((1, 1)))
    with pytest.raises(BadInput, match="holds only 3"):
        BagSource(pool, {}, length=3, signals=4)
