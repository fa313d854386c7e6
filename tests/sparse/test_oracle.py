import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, softmax

from attnlimit.errors import BadInput
from attnlimit.sparse import (
    Capacity,
    ErrorRate,
    SparseTask,
    bayes_error,
    capacity,
    oracle_error,
    scan_error,
    strength_needed,
)
from attnlimit.sparse.oracle import attention_score, log_likelihood_ratio, posterior_error
from attnlimit.sparse.quadrature import BagScores, bag_scores


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    length=st.integers(2, 200),
    signals=st.integers(1, 3),
    strength=st.floats(0, 7),
    prior=st.floats(0.05, 0.95),
)
def test_order_of_the_errors(length, signals, strength, prior):
    task = SparseTask(length, min(signals, length), strength, prior)
    bayes = bayes_error(task, log2_points=12)
    attention = oracle_error(task, log2_points=12)
    linear = oracle_error(task, "pooled")
    slack = 4 * (bayes.numerical_error + attention.numerical_error) + 5e-4
    assert -1e-12 <= bayes.value <= min(prior, 1 - prior) + 1e-9
    assert bayes.value <= attention.value + slack
    assert attention.value <= linear.value + slack
    assert attention.value <= scan_error(task) + slack


def test_attention_oracle_on_drawn_bags():
    task = SparseTask(30, 2, 3.0, 0.4)
    rule = oracle_error(task)
    tau, cut = rule.details["sharpness"], rule.details["threshold"]
    rng = np.random.default_rng(5)
    rates = []
    for label in (1, 0):
        x = rng.standard_normal((100_000, 30))
        x[:, :2] += 3.0 * label
        score = (softmax(tau * x, axis=1) * x).sum(axis=1)
        rates.append(np.mean((score > cut) != bool(label)))
    measured = 0.4 * rates[0] + 0.6 * rates[1]
    assert abs(measured - rule.value) < 4 * 1e-3 + 4 * rule.numerical_error


def test_hidden_tokens_change_nothing():
    # 65 tokens: the first length with a hidden one, against all drawn
    near = oracle_error(SparseTask(64, 1, 3.0)).value
    far = oracle_error(SparseTask(66, 1, 3.0)).value
    assert near < far < near + 0.01


def test_linear_oracle_closed_form():
    task = SparseTask(16, 2, 3.0)
    for model in ("pooled", "vectorized"):
        assert oracle_error(task, model).value == pytest.approx(ndtr(-3 * 2 / (2 * 4)))
    assert oracle_error(SparseTask(16, 2, 3.0, 0.1), "pooled").value < 0.1


def test_scan_error_on_drawn_maxima():
    task = SparseTask(100, 1, 4.0)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((40_000, 100))
    hit = noise.copy()
    hit[:, 0] += 4.0
    cuts = np.linspace(1, 5, 81)
    errors = [0.5 * np.mean(noise.max(1) > c) + 0.5 * np.mean(hit.max(1) < c) for c in cuts]
    assert scan_error(task) == pytest.approx(min(errors), abs=4e-3)


def test_strength_needed_separates_log_from_root():
    short, long = 2**6, 2**16
    growth = {m: strength_needed(0.05, long, m) / strength_needed(0.05, short, m)
              for m in ("bayes", "scan", "pooled")}  # fmt: skip
    assert growth["pooled"] == pytest.approx(32.0, rel=1e-4)
    assert growth["bayes"] < 1.5
    assert growth["scan"] < 1.5


def test_strength_needed_gives_that_error():
    theta = strength_needed(0.05, 50, "bayes", prior=0.3)
    assert bayes_error(SparseTask(50, 1, theta, 0.3)).value == pytest.approx(0.05, abs=1e-4)
    with pytest.raises(BadInput, match="guessing"):
        strength_needed(0.4, 50, "bayes", prior=0.3)


def test_other_models_are_refused():
    with pytest.raises(BadInput, match="model"):
        oracle_error(SparseTask(), "bayes")


def brute_bayes(task, draws, seed):
    """E min(posterior) with every support enumerated."""
    rng = np.random.default_rng(seed)
    supports = list(itertools.combinations(range(task.length), task.signals))
    values = []
    for label, prior in ((1, task.prior), (0, 1 - task.prior)):
        x = rng.standard_normal((draws, task.length))
        x[:, : task.signals] += task.strength * label
        sums = np.stack([x[:, list(s)].sum(axis=1) for s in supports])
        ratio = np.exp(task.strength * sums - task.signals * task.strength**2 / 2).mean(axis=0)
        wrong = np.minimum(task.prior * ratio, 1 - task.prior) / (
            task.prior * ratio + 1 - task.prior
        )
        values.append((prior * wrong.mean(), prior * wrong.std() / np.sqrt(draws)))
    return sum(v for v, _ in values), np.hypot(*[e for _, e in values])


@pytest.mark.parametrize(
    "task",
    [
        SparseTask(6, 1, 3.0),
        SparseTask(6, 1, 0.4, 0.3),
        SparseTask(7, 3, 1.5, 0.6),
        SparseTask(5, 5, 1.0),
    ],
)
def test_bayes_against_every_support_enumerated(task):
    expected, error = brute_bayes(task, 100_000, seed=1)
    result = bayes_error(task)
    assert abs(result.value - expected) < 4 * error + 3 * result.numerical_error + 1e-6


def test_likelihood_ratio_is_the_average_over_supports():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, 6))
    task = SparseTask(6, 3, 1.7)
    bag = BagScores(np.full(20, 0.05), x, np.empty((20, 0)), 0, np.zeros(20))
    sums = [x[:, list(s)].sum(axis=1) for s in itertools.combinations(range(6), 3)]
    direct = np.log(np.mean(np.exp(1.7 * np.array(sums) - 3 * 1.7**2 / 2), axis=0))
    np.testing.assert_allclose(log_likelihood_ratio(bag, task), direct, rtol=1e-10)


@pytest.mark.parametrize("length", [1, 40, 2**12, 2**20])
@pytest.mark.parametrize("strength", [1.0, 3.0, 6.0])
@pytest.mark.parametrize("prior", [0.5, 0.2])
def test_inversion_and_quasi_random_points_agree(length, strength, prior):
    task = SparseTask(length, 1, strength, prior)
    error = bayes_error(task)
    assert error.method == "Fourier inversion"
    assert error.value == pytest.approx(posterior_error(task, 12, 0), abs=3e-4)


def test_all_tokens_signal_is_two_gaussians():
    assert bayes_error(SparseTask(1, 1, 2.0)).value == pytest.approx(ndtr(-1.0), abs=1e-9)
    many = bayes_error(SparseTask(9, 9, 0.5)).value
    assert many == pytest.approx(ndtr(-0.75), abs=3e-3)


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (capacity(SparseTask(6, 1, 2.0), cosine=0.7), Capacity),
        (bayes_error(SparseTask()), ErrorRate),
        (oracle_error(SparseTask(), "pooled"), ErrorRate),
    ],
)
def test_a_result_is_used_as_its_value_and_is_not_a_float(result, kind):
    assert type(result) is kind
    assert not isinstance(result, float)
    value = result.value
    assert float(result) == value
    assert round(result, 2) == round(value, 2)
    assert f"{result:.3f}" == f"{value:.3f}"
    assert abs(result - 2.4) == abs(value - 2.4)
    assert 2 * result / 3 == 2 * value / 3
    assert result == pytest.approx(value)
    assert result > value - 1e-9
    assert min(result, value + 1) is result
    assert np.asarray([result, 1.0]).tolist() == [value, 1.0]
    assert np.sqrt(result) == np.sqrt(value)
    with pytest.raises(AttributeError):
        result.value = 0.0


def test_error_rates_explain_themselves():
    rate = bayes_error(SparseTask())
    assert "inversion" in str(rate)
    assert f"{rate}" == str(rate)
    row = rate.to_frame().loc[0]
    assert row["error"] == rate.value
    assert row["numerical_error"] == rate.numerical_error
    rule = oracle_error(SparseTask())
    assert rule.to_frame().loc[0, "sharpness"] == rule.details["sharpness"]


def test_extreme_tasks_are_answered_or_refused_in_a_sentence():
    assert bayes_error(SparseTask(10, 1, 3.0, 1e-300)).value == pytest.approx(1e-300, abs=1e-12)
    for error in (bayes_error, oracle_error):
        with pytest.raises(BadInput, match="signals must be at most"):
            error(SparseTask(10**6, 10**5, 0.5))


@pytest.mark.parametrize("signals", [0, 1])
@pytest.mark.parametrize("sharpness", [0.3, 1.0])
def test_scores_of_long_bags_have_the_moments_of_drawn_ones(signals, sharpness):
    bag = bag_scores(300 - signals, signals, 13, 0)
    assert bag.hidden > 200
    centre, width = attention_score(bag, sharpness, 2.0)
    mean = bag.weight @ centre
    spread = np.sqrt(bag.weight @ (centre**2 + width**2) - mean**2)
    x = np.random.default_rng(0).standard_normal((40_000, 300))
    x[:, :signals] += 2.0
    drawn = (softmax(sharpness * x, axis=1) * x).sum(axis=1)
    assert mean == pytest.approx(drawn.mean(), abs=4 * drawn.std() / 200)
    assert spread == pytest.approx(drawn.std(), rel=0.02)


def test_where_no_softmax_beats_the_largest_score_its_exact_error_is_given():
    strong, weak = (SparseTask(100, 1, strength) for strength in (5.0, 3.0))
    best = oracle_error(strong)
    assert best.method == "hard maximum"
    assert best.value == scan_error(strong)
    assert oracle_error(weak).value < scan_error(weak) - 1e-3
