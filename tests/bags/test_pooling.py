"""Estimators of bags: scikit-learn's own checks, and what they learn from sparse bags."""

import numpy as np
import pytest

import attnlimit as al
from attnlimit.errors import BadInput
from attnlimit.sparse import SparseTask
from drawn_bags import drawn

pytest.importorskip("sklearn")

TASK = SparseTask(length=12, signals=1, strength=6.0)
POOLINGS = {
    "mean": lambda: al.bags.MeanPooling(),
    "max": lambda: al.bags.MaxPooling(),
    "two-step": lambda: al.bags.AttentionPooling(),
    "joint": lambda: al.bags.AttentionPooling("joint", sharpness=1.0),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # scikit-learn casts NaN on purpose
@pytest.mark.parametrize("name", POOLINGS)
def test_scikit_learns_checks_pass(name):
    """All apply, as a table is read as bags of one instance; the array API's needs a setting."""
    from sklearn.utils.estimator_checks import check_estimator

    result = check_estimator(POOLINGS[name](), on_fail=None, on_skip=None)
    left = {
        entry["check_name"]: entry["exception"] for entry in result if entry["status"] != "passed"
    }
    assert set(left) <= {"check_array_api_input"}, left


def error(pooling, train, test):
    fitted = pooling.fit(train.instances, train.labels)
    return np.mean(fitted.predict(test.instances) != test.labels)


@pytest.fixture(scope="module")
def bags():
    return drawn(TASK, 300, 20, seed=0), drawn(TASK, 1000, 20, seed=1)


@pytest.mark.parametrize("name", ["two-step", "joint"])
def test_attention_finds_a_rare_signal_that_the_mean_misses(bags, name):
    floor = al.sparse.oracle_error(TASK, "attention").value
    result = error(POOLINGS[name](), *bags)
    assert result < floor + 0.03
    assert error(POOLINGS["mean"](), *bags) > 0.15


def test_the_signal_is_what_attention_looks_at(bags):
    train, test = bags
    fitted = POOLINGS["two-step"]().fit(train.instances, train.labels)
    weights = fitted.attention_weights(test.instances)
    direction = TASK.direction(20)
    hits = [
        np.argmax(p) == np.argmax(bag @ direction)
        for p, bag, y in zip(weights, test.instances, test.labels, strict=True)
        if y > 0
    ]
    assert all(abs(p.sum() - 1) < 1e-12 for p in weights)
    assert np.mean(hits) > 0.9


@pytest.mark.parametrize("name", POOLINGS)
def test_bags_may_have_any_lengths_and_be_one_array(name):
    X, y = TASK.sample(60, 5, seed=3)
    result = POOLINGS[name]().fit(X, y)
    many = POOLINGS[name]().fit(list(X), y)
    ragged = [bag[: 1 + i % 12] for i, bag in enumerate(X)]
    np.testing.assert_allclose(result.predict_proba(X), many.predict_proba(list(X)))
    np.testing.assert_allclose(
        np.concatenate([many.decision_function([bag]) for bag in ragged]),
        many.decision_function(ragged),
    )
    assert POOLINGS[name]().fit(ragged, y).predict(ragged).shape == (60,)


@pytest.mark.parametrize("name", POOLINGS)
def test_what_is_learned_does_not_depend_on_units(name):
    X, y = TASK.sample(60, 5, seed=4)
    scale = np.array([1e-3, 1.0, 10.0, 1e3, 1e5])
    odds = POOLINGS[name]().fit(X, y).decision_function(X)
    moved = POOLINGS[name]().fit(X * scale + 7, y).decision_function(X * scale + 7)
    np.testing.assert_allclose(odds, moved, rtol=1e-3, atol=1e-3)


def test_of_several_settings_the_best_on_bags_left_out_is_taken(bags):
    train, _ = bags
    few = train.subset(np.arange(60))
    fitted = al.bags.MeanPooling(ridge=(1e-4, 0.1, 1e4)).fit(few.instances, few.labels)
    assert fitted.ridge_ == 0.1
    assert al.bags.AttentionPooling().fit(few.instances, few.labels).sharpness_ >= 0.5


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((4, 3, 2)), [1, 1, 1, 1], "1 class"),
        (np.ones((3, 3, 2)), [0, 1, 2], "3 classes"),
        ([np.ones((3, 2)), np.ones((3, 4))], [0, 1], "number of columns"),
        ([np.ones((3, 2)), np.full((3, 2), np.nan)], [0, 1], "NaN"),
        ([np.ones((3, 2)), np.ones((0, 2))], [0, 1], "empty"),
        (np.ones((4, 3, 2)), [0, 1, 1], "4 bags but 3 labels"),
        ([np.ones((1, 2)), np.ones((3, 2))], [0, 1], "at least 2 instances"),
    ],
)
def test_bad_bags_are_refused_with_a_sentence(X, y, message):
    with pytest.raises(BadInput, match=message):
        al.bags.AttentionPooling().fit(X, y)


def test_a_wrong_training_is_refused():
    X, y = TASK.sample(20, 3, seed=0)
    with pytest.raises(BadInput, match="two-step, joint"):
        al.bags.AttentionPooling("end-to-end").fit(X, y)
