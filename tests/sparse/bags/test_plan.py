import numpy as np
import pytest

from attnlimit.sparse import Bags, SparseTask, estimate, make_bags, measure_plan, plan_bags
from attnlimit.sparse.bags.digits import digit_bags
from drawn_bags import drawn


def test_noise_alone_shows_no_signal():
    X = np.random.default_rng(0).standard_normal((400, 10, 20))
    y = np.where(np.arange(400) % 2, 1, -1)
    found = estimate(make_bags(list(X), y))
    agreement = next(c for c in found.checks if "halves" in c.assumption)
    assert not agreement.holds
    plan = plan_bags(make_bags(list(X), y), [100])
    assert plan.recommendation.startswith("No recommendation")


@pytest.mark.slow
def test_plan_is_what_training_gives():
    task = SparseTask(10, 1, 5.0)
    plan = plan_bags(drawn(task, 400, 40, seed=5), [200, 800])
    assert "attention" in plan.recommendation

    def draw(n, rng):
        X, y = task.sample(n, 40, rng)
        return Bags(tuple(X), y)

    frame = measure_plan(plan, draw, drawn(task, 3000, 40, seed=6), replicates=6, seed=1)
    for row in frame.itertuples():
        slack = 0.012 if row.pooling == "attention" else 0.025
        assert abs(row.measured - row.predicted) < 3 * row.stderr + slack
    assert len(plan.to_frame()) == 2
    assert "bags" in str(plan)


@pytest.mark.slow
def test_real_digits_end_to_end():
    source = digit_bags(digit=6)
    rng = np.random.default_rng(0)
    plan = plan_bags(source.draw(400, rng), [800])
    frame = measure_plan(plan, source.draw, source.draw_tests(1000, rng), replicates=3)
    errors = frame.set_index("pooling")["measured"]
    # attention wins by far, as predicted, though both predictions are optimistic on images
    assert errors["attention"] < 0.5 * errors["mean pooling"]
    assert errors["mean pooling"] == pytest.approx(plan.mean_error[0], rel=0.35)
    assert any(not check.holds for check in plan.estimate.checks)
