import numpy as np
import pytest

from attnlimit.bags.forecast import learning_law
from attnlimit.sparse import SparseTask, oracle_error, readout
from bag_split import best_split


@pytest.mark.parametrize(("prior", "slack"), [(0.5, 0.001), (0.3, 0.04)])
def test_the_law_of_fixed_features_is_exact_if_classes_are_as_frequent(prior, slack):
    task = SparseTask(10, 1, 4.0, prior)
    law = learning_law("pooled", 10, 1, prior)
    for alpha in (1.0, 8.0):
        exact = min(readout(task, alpha, "pooled", ridge=r).test_error for r in (0.01, 0.1, 10.0))
        assert law(4 / np.sqrt(10), 1.0, alpha) == pytest.approx(exact, rel=slack)


@pytest.mark.slow
def test_the_law_of_attention_sums_up_the_exact_asymptotics():
    task = SparseTask(10, 1, 5.3)
    law = learning_law("attention", 10, 1, 0.5)
    for alpha in (1.0, 8.0):
        exact = best_split(task, alpha, ridge=0.1, sharpness=2.0).test_error
        assert law(5.3, 1.0, alpha) == pytest.approx(exact, rel=0.2)


def test_endless_bags_leave_what_a_known_direction_would():
    law = learning_law("pooled", 1, 1, 0.4)
    known = oracle_error(SparseTask(1, 1, 2.0, 0.4), "pooled").value
    assert law(2.0, 50.0, 1e9) == pytest.approx(known, rel=0.01)
    assert law(2.0, 50.0, 1e-3) == pytest.approx(0.4, rel=1e-3)
    angle = np.array([0.2, 0.5])
    assert law.angle(law.strength(angle), 1.0, 1e12) == pytest.approx(angle, rel=1e-3)


@pytest.mark.parametrize("signals", [1, 4])
def test_lengths_that_vary_are_averaged_over(signals):
    """The largest score against one cut, on bags of two lengths with signals in proportion."""
    rng, strength, draws = np.random.default_rng(0), 3.0, 40_000
    law = learning_law("attention", (4, 12), signals, 0.5)
    largest: dict[bool, list[np.ndarray]] = {False: [], True: []}
    for length, many in ((4, max(1, signals // 2)), (12, max(1, 3 * signals // 2))):
        for positive in (False, True):
            scores = rng.standard_normal((draws, length))
            scores[:, :many] += strength * positive
            largest[positive].append(scores.max(axis=1))
    quiet, loud = (np.concatenate(largest[positive]) for positive in (False, True))
    cuts = np.linspace(1, 4, 301)
    wrong = [((quiet > cut).mean() + (loud < cut).mean()) / 2 for cut in cuts]
    assert law(strength, 1.0, 1e9) == pytest.approx(min(wrong), abs=0.003)


def test_errors_fall_with_bags_and_strength_and_rise_with_dimension():
    law = learning_law("attention", 20, 2, 0.3)
    curve = law(4.0, 30.0, np.array([10.0, 100.0, 1000.0]))
    assert (np.diff(curve) < 0).all()
    assert law(5.0, 30.0, 100.0) < law(4.0, 30.0, 100.0) < law(4.0, 90.0, 100.0)
