from dataclasses import replace

import numpy as np
import pytest

from attnlimit.bags import Bags, estimate, make_bags
from attnlimit.bags import plan as plan_bags
from attnlimit.bags.pilot import THEORY
from attnlimit.bags.planner import deciding_instances
from attnlimit.errors import BadInput
from attnlimit.sparse import SparseTask
from bag_sources import digit_bags
from drawn_bags import drawn
from planned_bags import measure_plan

pytest.importorskip("sklearn")


def test_noise_alone_shows_no_signal():
    X = np.random.default_rng(0).standard_normal((40, 4, 5))
    y = np.where(np.arange(40) % 2, 1, -1)
    plan = plan_bags(make_bags(list(X), y), [100])
    assert plan.headline().startswith("Cannot tell yet")
    assert "more bags" in plan.next_step() or "take the simpler" in plan.next_step()
    result = estimate(make_bags(list(X), y))
    assert not all(check.holds for check in result.checks)


def test_a_plan_says_which_pooling_and_how_sure(plan):
    assert plan.recommended == "attention"
    assert plan.advice[-1].better > 0.9
    text = str(plan)
    assert text.startswith(f"{plan.enough} labelled bags are enough for attention")
    frame = plan.to_frame()
    assert set(frame["pooling"]) == {
        "mean pooling", "max pooling", "attention", "joint attention"
    }  # fmt: skip
    predicted = frame.dropna(subset=["predicted"])
    assert (predicted["low"] <= predicted["predicted"]).all()
    assert (predicted["predicted"] <= predicted["high"]).all()
    assert len(plan.panel().series) == 10
    assert any("effective strength" in line for line in plan.remarks())


def test_nothing_below_one_bag_of_the_pilot_is_a_number(plan):
    predicted = plan.to_frame().dropna(subset=["predicted"])
    assert predicted["predicted"].min() >= plan.resolution
    assert (predicted.loc[predicted["low"] < plan.resolution, "low"] == 0).all()
    assert plan.format_error(0.0, 1e-9, 1e-9) == "less than 1/60"
    assert plan.format_error(0.0, 1e-9, 0.1).startswith("less than 1/60 (90 %")


def test_the_theory_gives_no_level_to_what_it_is_not_about(plan):
    predicted = {name: plan.theory(name, 100) for name in plan.pilot.poolings}
    assert {name for name, error in predicted.items() if not np.isnan(error)} == set(THEORY)


def test_the_signal_is_what_tells(plan, pilot):
    deciding = deciding_instances(plan.estimator, pilot, each=3, top=1)
    positive = deciding[deciding["label"] == "1"]
    assert len(positive) == 3
    # the direction of the signal has equal entries
    for row in positive.itertuples():
        heights = pilot.instances[int(row.bag)].sum(axis=1)
        assert row.instance == np.argmax(heights)


def test_a_prediction_above_what_was_measured_is_explained(plan):
    def lucky(wrong):
        few = replace(plan.pilot, wrong=np.full_like(plan.pilot.wrong, wrong))
        return [remark for remark in replace(plan, pilot=few).remarks() if "luck" in remark]

    assert lucky(0.5) == []
    (sentence,) = lucky(0.0)  # mean pooling errs far more often
    assert "mean pooling" in sentence


def test_a_plan_is_what_training_gives(plan):
    task = SparseTask(6, 1, 5.0)

    def draw(n, rng):
        X, y = task.sample(n, 5, rng)
        return Bags(tuple(X), y)

    frame = measure_plan(plan, draw, drawn(task, 1500, 5, seed=6), replicates=2, seed=1)
    assert len(frame) == 8
    assert frame["measured"].between(frame["low"], frame["high"]).mean() > 0.7


def test_no_option_is_needed_where_features_outnumber_instances():
    rng = np.random.default_rng(0)
    bags = [rng.standard_normal((1 + n % 3, 60)) for n in range(12)]
    plan = plan_bags(make_bags(bags, [1, 0] * 6))
    assert plan.budgets.tolist() == [12, 24, 48, 96]
    for wrong in ({"budgets": [2]}, {"budgets": []}):
        with pytest.raises(BadInput, match=next(iter(wrong))):
            plan_bags(make_bags(bags, [1, 0] * 6), **wrong)
    assert "bags" in str(plan)
    with pytest.raises(BadInput, match="at least 3 bags of each class"):
        plan_bags(make_bags(bags[:3], [1, 0, 0]))


@pytest.mark.slow
def test_real_digits_end_to_end():
    source = digit_bags(digit=6)
    rng = np.random.default_rng(0)
    plan = plan_bags(source.draw(100, rng), [200])
    frame = measure_plan(plan, source.draw, source.draw_tests(500, rng), replicates=2)
    errors = frame.set_index("pooling")
    assert errors.loc[plan.recommended, "measured"] < 0.7 * errors.loc["mean pooling", "measured"]
    assert frame["measured"].between(frame["low"], frame["high"]).mean() >= 0.75


def test_instances_in_more_than_one_bag_are_told(plan):
    assert plan.shared == 0
    assert "more than one bag" not in plan.headline()
    repeated = replace(plan, shared=0.4)
    assert "40% of the instances are in more than one bag" in repeated.headline()
    assert repeated.recommended == plan.recommended
    low, middle, high = plan.predicted("attention", 400)
    assert repeated.predicted("attention", 400).tolist() == [low, middle, plan.guess]
    assert high < plan.guess


def test_shared_instances_are_counted_once_for_each_bag():
    row, own = np.ones((1, 2)), np.arange(8.0).reshape(2, 2, 2) + 2
    bags = make_bags([np.vstack([row, own[0]]), np.vstack([row, own[1]])], [0, 1])
    assert bags.shared == pytest.approx(2 / 6)
