"""Fitted constants of the planner, on bags that none of them was fitted to."""

import numpy as np
import pytest
from scipy.optimize import least_squares

from attnlimit import constants
from attnlimit.bags import estimate, forecast, make_bags
from attnlimit.bags.pilot import LAWS, poolings
from attnlimit.sparse import SparseTask

pytest.importorskip("sklearn")
SIZES = (40, 80, 160)
LAST = 640


def draw(kind, n, rng):
    """Bags of another noise or several lengths, with a signal of strength 4 in half of them."""
    bags, labels = [], np.where(np.arange(n) % 2, 1, -1)
    for label in labels:
        shape = (int(rng.integers(3, 10)) if kind == "lengths" else 6, 12)
        bag = {
            "laplace": lambda: rng.laplace(size=shape) / np.sqrt(2),  # noqa: B023
            "uniform": lambda: rng.uniform(-1, 1, shape) * np.sqrt(3),  # noqa: B023
            "lengths": lambda: rng.standard_normal(shape),  # noqa: B023
        }[kind]()
        bag[0] += 4 / np.sqrt(12) * (label > 0)
        bags.append(bag)
    return bags, labels


@pytest.fixture(scope="module")
def curves():
    """arcsin sqrt of the errors of several training sets, by kind, pooling and size."""
    from sklearn.base import clone

    results = {}
    for kind in ("laplace", "uniform", "lengths"):
        rng = np.random.default_rng(0)
        test, truth = draw(kind, 2000, rng)
        for name in ("mean pooling", "attention"):
            for n in (*SIZES, LAST):
                errors = []
                for _ in range(8 if n < LAST else 4):
                    bags, labels = draw(kind, n, rng)
                    fitted = clone(poolings(None)[name]).fit(bags, labels)
                    errors.append(np.mean(fitted.predict(test) != truth))
                results[kind, name, n] = np.arcsin(np.sqrt(errors))
    return results


@pytest.mark.slow
def test_training_sets_scatter_as_the_constant_says(curves):
    few = [angles.var(ddof=1) for (_, _, n), angles in curves.items() if n == SIZES[0]]
    assert 0.5 < np.sqrt(np.mean(few)) / constants.TRAINING_NOISE < 1.5


@pytest.mark.slow
def test_curves_leave_the_law_no_faster_than_the_constant_says(curves):
    gaps = []
    for kind, name, n in curves:
        if n != LAST:
            continue
        law = forecast.learning_law(LAWS[name], 6, 1, 0.5)
        seen = [curves[kind, name, size].mean() for size in SIZES]

        def off(logs, law=law, seen=seen):
            return law.angle(*np.exp(logs), np.array(SIZES)) - seen

        fitted = least_squares(off, np.log([3.0, 8.0]))
        predicted = law.angle(*np.exp(fitted.x), float(LAST))
        gaps.append((curves[kind, name, n].mean() - predicted) / np.log(LAST / SIZES[-1]))
    assert 0.1 < np.sqrt(np.mean(np.square(gaps))) / constants.SHAPE_NOISE < 1


@pytest.mark.parametrize(
    ("task", "bags", "dim"),
    [
        (SparseTask(8, 1, 4.0), 150, 12),
        (SparseTask(15, 2, 5.0), 100, 20),
        (SparseTask(5, 1, 6.0), 80, 8),
    ],
)
def test_repeated_estimates_scatter_as_the_constants_say(task, bags, dim):
    logs = []
    for seed in range(24):
        X, y = task.sample(bags, dim, seed)
        result = estimate(make_bags(list(X), y))
        logs.append((np.log(result.task.strength / task.strength), np.log(result.dim / dim)))
    strength, spread = np.sqrt(np.mean(np.square(logs), axis=0))
    assert 0.4 < strength * np.sqrt(bags) / constants.ESTIMATE_SPREAD < 1.5
    assert spread <= constants.ESTIMATE_DIM_SPREAD


def test_before_a_pilot_the_constants_are_all_that_is_believed():
    law, sizes = forecast.learning_law("pooled", 1, 1, 0.5), np.array([20.0])
    nothing = {"bags": 1, "correlation": np.full((1, 1), 1e12), "dim": 40}
    prior = forecast.forecast([law], sizes, np.array([0.3]), **nothing)
    learned = prior.strength > 0
    weight = prior.weight[learned] / prior.weight[learned].sum()
    logs = np.log(prior.dim[learned])
    centre = weight @ logs
    assert prior.weight[~learned].sum() == pytest.approx(constants.NO_SIGNAL, abs=0.02)
    assert np.exp(centre) == pytest.approx(constants.USUAL_DIM * 40, rel=0.1)
    # a normal law cut at two standard deviations
    assert np.sqrt(weight @ (logs - centre) ** 2) == pytest.approx(
        0.88 * constants.DIM_SPREAD, rel=0.05
    )
    shares = [weight[prior.floor[learned] == floor].sum() for floor in constants.FLOORS]
    assert sum(shares) == pytest.approx(1.0)
    assert min(shares) > 0.1
    estimated = forecast.Prior(5.0, 20.0, 0.05)
    believed = forecast.forecast([law], sizes, np.array([0.3]), prior=estimated, **nothing)
    near = (abs(np.log(believed.dim / 20)) < 0.35) & (abs(believed.strength - 5) < 1)
    assert believed.weight[near].sum() == pytest.approx(constants.ESTIMATE_PROBABILITY, abs=0.05)
