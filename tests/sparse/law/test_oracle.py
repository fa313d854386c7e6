import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, softmax

from attnlimit.errors import BadInput
from attnlimit.sparse import SparseTask, bayes_error, oracle_error, scan_error, strength_needed


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
