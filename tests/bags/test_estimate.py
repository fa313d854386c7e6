import numpy as np
import pytest

from attnlimit.bags import estimate, make_bags
from attnlimit.errors import BadInput
from attnlimit.sparse import SparseTask
from drawn_bags import drawn


def test_estimate_recovers_the_task():
    task = SparseTask(12, 1, 4.5, 0.4)
    result = estimate(drawn(task, 500, 30, seed=1))
    assert result.task.length == 12
    assert result.task.signals == 1
    assert result.task.strength == pytest.approx(4.5, rel=0.06)
    assert result.task.prior == pytest.approx(0.4, abs=0.06)
    assert result.signal_fraction == pytest.approx(1 / 12, rel=0.15)
    assert all(check.holds for check in result.checks), str(result)
    assert abs(result.direction @ (result.whitening.T @ task.direction(30))) > 0.9


def test_whitening_by_few_instances_does_not_inflate_the_strength():
    task = SparseTask(10, 1, 5.3)
    results = [estimate(drawn(task, 100, 55, seed=seed)).task.strength for seed in range(12)]
    assert np.mean(results) == pytest.approx(5.3, rel=0.03)  # 5 % too strong if it were left


def test_estimate_does_not_depend_on_the_coordinates():
    task = SparseTask(10, 2, 4.0)
    bags = drawn(task, 300, 10, seed=2)
    turn, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((10, 10)))
    moved = bags.transformed(turn * np.linspace(0.7, 1.4, 10), np.full(10, 5.0))
    a, b = estimate(bags), estimate(moved)
    assert a.dim == b.dim == 10
    assert a.task.strength == pytest.approx(b.task.strength, rel=1e-6)
    assert a.signal_fraction == pytest.approx(b.signal_fraction, rel=1e-6)
    for check, other in zip(a.checks, b.checks, strict=True):
        if "kurtosis" not in check.assumption:  # averaged over axes, which the turn changes
            assert check.measured == pytest.approx(other.measured, abs=1e-5)


def test_broken_assumptions_are_named():
    task = SparseTask(10, 1, 5.0)
    X, y = task.sample(400, 20, seed=3)
    heavy = X + 2 * np.random.default_rng(0).standard_t(2.5, X.shape)
    kurtosis = estimate(make_bags(list(heavy), y)).checks[0]
    assert not kurtosis.holds
    shifted = X + np.random.default_rng(0).standard_normal((400, 1, 20))
    clustered = estimate(make_bags(list(shifted), y)).checks[2]
    assert not clustered.holds
    ragged = make_bags([bag[: 3 + i % 8] for i, bag in enumerate(X)], y)
    assert not next(c for c in estimate(ragged).checks if "length" in c.assumption).holds


def test_a_small_pilot_sees_fewer_directions():
    result = estimate(drawn(SparseTask(2, 1, 2.0), 40, 50, seed=0))
    assert 1 <= result.dim < 10


def test_a_pilot_that_is_too_small_is_refused():
    with pytest.raises(BadInput, match="too few to see the noise"):
        estimate(make_bags([np.ones((2, 8))] * 4, [1, 1, 0, 0]))
    with pytest.raises(BadInput, match="all alike"):
        estimate(make_bags([np.ones((4, 2))] * 8, [1, 0] * 4))
