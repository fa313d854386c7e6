import numpy as np
import pytest

from attnlimit.bags import make_bags
from attnlimit.bags.pilot import (
    Effort,
    PilotErrors,
    affordable,
    cross_validate,
    sharing_groups,
    stratified_folds,
    stratified_part,
)
from attnlimit.errors import BadInput
from attnlimit.sparse import SparseTask
from drawn_bags import drawn


def test_folds_and_parts_hold_both_classes():
    labels = np.array([1] * 7 + [-1] * 23)
    rng = np.random.default_rng(0)
    fold = stratified_folds(labels, 5, rng)
    assert np.ptp(np.bincount(fold)) <= 1
    assert np.ptp(np.bincount(fold[labels > 0], minlength=5)) <= 1
    part = stratified_part(labels, 9, rng)
    assert len(set(part.tolist())) == 9
    assert (labels[part] > 0).sum() == 2


def twins(many):
    """Bags of noise in pairs of one label that share an instance."""
    rng = np.random.default_rng(0)
    bags = rng.standard_normal((2 * many, 3, 4))
    bags[1::2, 0] = bags[0::2, 2]
    return make_bags(bags, np.repeat(np.arange(many) % 2, 2))


def test_bags_that_share_instances_are_left_out_together():
    bags = twins(40)
    groups = sharing_groups(bags, 5)
    assert (groups[0::2] == groups[1::2]).all()
    assert len(set(groups.tolist())) == 40
    fold = stratified_folds(bags.signs, 5, np.random.default_rng(0), groups)
    assert (fold[0::2] == fold[1::2]).all()
    assert np.bincount(fold).tolist() == [16] * 5
    assert sharing_groups(twins(8), 5) is None  # four groups of a class cannot be in five folds
    alone = bags.subset(np.arange(0, 80, 2))
    assert sharing_groups(alone, 5).tolist() == list(range(40))


def test_errors_fall_with_size_and_agree_with_fresh_bags():
    pooling = pytest.importorskip("attnlimit.bags.pooling")
    task = SparseTask(4, 2, 3.0)
    bags = drawn(task, 120, 10, seed=0)
    pilot = cross_validate(bags, {"mean": pooling.MeanPooling(0.1)}, Effort(4, 2), seed=1)
    assert pilot.sizes.tolist() == [27, 50, 90]
    error = pilot.error[0]
    assert error[0] > error[2]
    fresh = drawn(task, 2000, 10, seed=9)
    trained = pooling.MeanPooling(0.1).fit(list(bags.instances), bags.labels)
    truth = np.mean(trained.predict(list(fresh.instances)) != fresh.labels)
    assert abs(error[2] - truth) < 3 * pilot.stderr[0, 2]


def test_luck_is_taken_out_of_differences():
    rng = np.random.default_rng(0)
    luck = (rng.random((4, 1, 50)) < 0.2).astype(float)
    names = tuple("abcd")
    alike = PilotErrors(names, np.array([40]), luck, 5, 1)
    assert np.ptp(alike.angles()) < 0.5 * np.ptp(np.arcsin(np.sqrt(alike.error)))
    rates = np.array([0.05, 0.2, 0.35, 0.5])[:, None, None]
    apart = PilotErrors(
        names, np.array([40]), (rng.random((4, 1, 5000)) < rates).astype(float), 5, 1
    )
    assert np.sin(apart.angles()[:, 0]) ** 2 == pytest.approx(apart.error[:, 0], abs=0.002)


def test_large_pilots_are_cut_less_often():
    small, large = (make_bags([np.ones((2, 3))] * n, [1, 0] * (n // 2)) for n in (40, 400))
    assert affordable(small).repeats > affordable(large).repeats
    huge = make_bags([np.ones((2000, 250))] * 10, [1, 0] * 5)
    assert affordable(huge).folds == 2


def test_too_few_bags_to_leave_any_out():
    bags = make_bags([np.ones((2, 3))] * 5, [1, 1, 0, 0, 0])
    with pytest.raises(BadInput, match="at least 3 bags of each class"):
        cross_validate(bags, {}, Effort(5, 1))
