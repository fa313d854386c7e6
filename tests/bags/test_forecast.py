import numpy as np
import pytest

from attnlimit.bags.forecast import Prior, forecast, learning_law

SIZES = np.array([20, 35, 64])


def pilots(law, strength, dim, bags, many, rng):
    """Forecasts from `many` pilots, in each of which errors at different sizes are independent."""
    for _ in range(many):
        seen = rng.binomial(bags, law(strength, dim, SIZES)) / bags
        angles = np.arcsin(np.sqrt((seen * bags + 0.375) / (bags + 0.75)))
        yield forecast([law], SIZES, angles, bags=bags, correlation=np.eye(3), dim=2 * dim)


@pytest.mark.parametrize(("model", "strength"), [("pooled", 2.5), ("attention", 4.0)])
def test_nine_intervals_of_ten_hold(model, strength):
    law = learning_law(model, 10, 1, 0.5)
    truth = float(law(strength, 20, 200))
    rng = np.random.default_rng(0)
    held = [
        low <= truth <= high
        for low, _, high in (pilot.error(200) for pilot in pilots(law, strength, 20, 80, 60, rng))
    ]
    assert np.mean(held) > 0.85


def test_more_bags_make_a_narrower_forecast():
    law = learning_law("pooled", 1, 1, 0.5)
    rng = np.random.default_rng(1)
    widths = [
        np.mean([np.ptp(pilot.error(100)) for pilot in pilots(law, 2.0, 20, bags, 5, rng)])
        for bags in (40, 160, 640)
    ]
    assert widths[0] > widths[1] > widths[2]


def test_a_belief_counts_until_the_pilot_speaks_against_it():
    law = learning_law("attention", 10, 1, 0.5)
    shared = {"bags": 100, "correlation": np.eye(3), "dim": 40}
    belief = Prior(5.0, 20.0, 0.05)
    expected = law(5.0, 20.0, SIZES)
    near, far = (
        forecast([law], SIZES, np.arcsin(np.sqrt(errors)), prior=belief, **shared)
        for errors in (expected, np.full(3, 0.3))
    )
    alone = forecast([law], SIZES, np.arcsin(np.sqrt(expected)), **shared)
    assert np.ptp(near.error(200)) < np.ptp(alone.error(200))
    assert near.error(200)[1] == pytest.approx(float(law(5.0, 20.0, 200)), rel=0.2)
    assert far.error(200)[0] > 0.1


def test_a_curve_of_another_shape_is_a_surprise():
    law = learning_law("pooled", 1, 1, 0.5)
    rising = np.arcsin(np.sqrt([0.1, 0.2, 0.4]))
    shared = {"bags": 200, "correlation": np.eye(3), "dim": 10}
    assert forecast([law], SIZES, rising, **shared).surprise < 1e-3
    low, middle, high = forecast([law], SIZES, rising[::-1], **shared).interval("strength")
    assert low <= middle <= high


def test_a_pooling_may_be_worse_than_naming_the_likelier_class():
    law = learning_law("pooled", 1, 1, 0.1)
    worse = np.arcsin(np.sqrt(np.full(3, 0.14)))
    result = forecast([law], SIZES, worse, bags=400, correlation=np.eye(3), dim=10)
    low, middle, high = result.error(100)
    assert low < 0.14 < high
    assert middle > law.task.guess
