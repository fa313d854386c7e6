import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlimit.errors import BadInput, NotConverged
from attnlimit.sparse import (
    SparseTask,
    capacity,
    learning_curve,
    oracle_error,
    readout,
    simulate_capacity,
)

TASK = SparseTask(10, 1, 5.0, 0.5)


def test_reference_values(reference):
    section = reference["readout_asymptotics"]
    for case in section["cases"]:
        result = readout(
            TASK,
            case["alpha"],
            cosine=0.8,
            sharpness=1.0,
            loss=case["loss"],
            ridge=case["ridge"],
        )
        tolerance = case.get("rtol", section["rtol"])
        assert result.test_error == pytest.approx(case["test_error"], rel=tolerance)
        assert result.train_loss == pytest.approx(case["train_loss"], rel=tolerance)


def test_values_seen_here_do_not_move():
    result = readout(TASK, 4.0, cosine=0.8, sharpness=1.0)
    assert result.test_error == pytest.approx(0.03607, abs=2e-4)
    assert result.train_loss == pytest.approx(0.05656, abs=2e-4)


@pytest.mark.parametrize(
    ("length", "signals", "cosine", "sharpness"), [(10, 1, 0.8, 1.0), (40, 2, 0.5, 6.0)]
)
def test_refining_the_points_moves_the_error_by_1e_4(length, signals, cosine, sharpness):
    task = SparseTask(length, signals, 4.0)
    setting = {"cosine": cosine, "sharpness": sharpness, "ridge": 1e-3}
    coarse = readout(task, 2.0, **setting)
    fine = readout(task, 2.0, **setting, log2_points=16)
    assert abs(coarse.test_error - fine.test_error) < 1.5e-4
    assert abs(coarse.train_loss - fine.train_loss) < 1.5e-4


def test_no_sharpness_is_mean_pooling_whatever_the_query():
    pooled = readout(TASK, 3.0, "pooled")
    for cosine in (-1.0, 0.0, 0.6, 1.0):
        flat = readout(TASK, 3.0, cosine=cosine, sharpness=0.0)
        assert flat.test_error == pytest.approx(pooled.test_error, abs=4e-4)
        assert flat.train_loss == pytest.approx(pooled.train_loss, abs=4e-4)


def test_pooled_and_vectorized_are_one_system_counted_differently():
    # ridge scales with the squared size of the features, alpha with the parameters
    pooled = readout(TASK, 0.3, "pooled", ridge=1e-3 / 10)
    vectorized = readout(TASK, 3.0, "vectorized", ridge=1e-3)
    assert pooled.test_error == pytest.approx(vectorized.test_error, abs=1e-8)
    assert pooled.train_loss == pytest.approx(vectorized.train_loss, abs=1e-8)


def test_square_loss_pooled_without_signal_is_ridge_regression():
    # no signal: E (z - y)^2 on fresh bags has the closed form of ridge regression on noise
    task = SparseTask(4, 1, 0.0, 0.5)
    result = readout(task, 2.0, "pooled", loss="square", ridge=0.0)
    # n = 2 d: the residual variance is 1 - d/n on the training set, half of it the loss
    assert result.train_loss == pytest.approx(0.25, abs=1e-6)
    assert result.test_error == pytest.approx(0.5, abs=1e-9)


@pytest.mark.parametrize("model", ["attention", "pooled", "vectorized"])
def test_ridgeless_square_is_the_limit_of_small_ridges(model):
    for alpha in (0.4, 3.0):
        setting = {"cosine": 0.8, "sharpness": 1.0, "loss": "square"}
        limit = readout(TASK, alpha, model, ridge=0.0, **setting)
        near = readout(TASK, alpha, model, ridge=1e-8, **setting)
        assert limit.test_error == pytest.approx(near.test_error, abs=2e-5)


def test_max_margin_is_the_limit_of_every_margin_loss():
    limit = readout(TASK, 3.0, cosine=0.8, sharpness=1.0, ridge=0.0)
    assert limit.train_error == 0.0
    assert limit.train_margin * limit.norm > 1  # the smallest margin, so less than their mean
    assert limit.test_margin < limit.train_margin
    hinge = readout(TASK, 3.0, cosine=0.8, sharpness=1.0, ridge=1e-8, loss="hinge")
    assert hinge.test_error == pytest.approx(limit.test_error, abs=2e-4)
    # logistic goes there like 1/log(1/ridge)
    ridges = np.array([1e-4, 1e-6, 1e-8])
    errors = [readout(TASK, 3.0, cosine=0.8, sharpness=1.0, ridge=r).test_error for r in ridges]
    gaps = limit.test_error - np.array(errors)
    assert (gaps > 0).all()
    assert (np.diff(gaps) < 0).all()


def test_training_error_vanishes_below_capacity_and_not_above():
    star = capacity(TASK, "pooled").value
    below = readout(TASK, 0.9 * star, "pooled", ridge=1e-8)
    above = readout(TASK, 1.3 * star, "pooled", ridge=1e-8)
    assert below.train_error < 1e-6
    assert above.train_error > 0.01


def test_unregularised_at_the_threshold_is_refused():
    with pytest.raises(NotConverged, match="capacity"):
        readout(TASK, capacity(TASK, "pooled").value, "pooled", ridge=0.0)
    with pytest.raises(NotConverged, match="parameters"):
        readout(TASK, 1.0, "pooled", ridge=0.0, loss="square")


def test_error_stays_above_the_oracle_and_reaches_it():
    floor = oracle_error(TASK, "pooled").value
    errors = [r.test_error for r in learning_curve(TASK, [1, 10, 100, 10_000], "pooled")]
    assert (np.diff(errors) < 0).all()
    assert errors[-1] >= floor
    assert errors[-1] == pytest.approx(floor, abs=2e-3)


def test_swapping_the_classes_flips_the_query_where_every_token_is_signal():
    # R = L: a softmax ignores the common shift, so both classes have the noise n of one law, and
    # f -> theta xi - f swaps the classes and turns n = k q + rho z into -n, noise of the query -q
    turned = [
        readout(SparseTask(4, 4, 2.0, prior), 2.0, cosine=cosine, sharpness=3.0)
        for prior, cosine in ((0.3, 0.6), (0.7, -0.6))
    ]
    assert turned[0].test_error == pytest.approx(turned[1].test_error, abs=4e-4)
    assert turned[0].train_loss == pytest.approx(turned[1].train_loss, abs=4e-4)
    # one signal among noise has no such symmetry
    towards, away = (readout(SparseTask(4, 1, 2.0), 2.0, cosine=c, sharpness=3.0) for c in (1, -1))
    assert away.test_error > towards.test_error + 0.05


def test_warm_start_gives_the_cold_answer():
    warm = learning_curve(TASK, [0.5, 1.0, 2.0, 4.0], cosine=0.8, sharpness=1.0, ridge=1e-5)
    for r in warm:
        cold = readout(TASK, r.alpha, cosine=0.8, sharpness=1.0, ridge=1e-5)
        assert r.test_error == pytest.approx(cold.test_error, abs=1e-7)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    length=st.integers(2, 100),
    signals=st.integers(1, 5),
    strength=st.floats(0, 8),
    prior=st.floats(0.05, 0.95),
    log_alpha=st.floats(np.log(0.1), np.log(50)),
    log_ridge=st.floats(-8, 1),
    cosine=st.floats(-1, 1),
    sharpness=st.floats(0, 20),
    model=st.sampled_from(["attention", "pooled", "vectorized"]),
    loss=st.sampled_from(["logistic", "square", "hinge"]),
)
def test_any_setting_converges(
    length, signals, strength, prior, log_alpha, log_ridge, cosine, sharpness, model, loss
):
    task = SparseTask(length, min(signals, length), strength, prior)
    result = readout(
        task,
        float(np.exp(log_alpha)),
        model,
        cosine=cosine,
        sharpness=sharpness,
        loss=loss,
        ridge=10**log_ridge,
        log2_points=10,
    )
    assert result.converged
    assert result.residual < 1e-8
    assert 0 <= result.test_error <= 1
    assert result.train_loss >= 0
    assert result.rest > 0


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": -1.0}, "alpha"),
        ({"cosine": 1.2}, "cosine"),
        ({"cosine": float("nan")}, "cosine"),
        ({"sharpness": -1.0}, "sharpness"),
        ({"ridge": -1e-3}, "ridge"),
        ({"model": "transformer"}, "model"),
        ({"loss": "huber"}, "loss"),
    ],
)
def test_bad_input_is_one_sentence(change, word):
    options = {"alpha": 2.0, "cosine": 0.8, "sharpness": 1.0} | change
    alpha = options.pop("alpha")
    with pytest.raises(BadInput, match=word):
        readout(TASK, alpha, **options)


def test_the_picture_is_the_law_of_the_prediction_in_each_class():
    result = readout(SparseTask(6, 1, 4.0, 0.3), 2.0, cosine=0.8, sharpness=1.0)
    positive, negative = result.panel().series[:2]
    x = np.asarray(positive.x)
    assert np.trapezoid(positive.y, x) == pytest.approx(0.3, abs=0.005)
    assert np.trapezoid(negative.y, x) == pytest.approx(0.7, abs=0.005)
    wrong = np.trapezoid(np.where(x < 0, positive.y, negative.y), x)
    assert wrong == pytest.approx(result.test_error, abs=0.01)


def test_it_prints_and_makes_a_frame():
    result = readout(TASK, 2.0, cosine=0.8, sharpness=1.0)
    assert "test error" in str(result)
    assert result.to_frame().loc[0, "test_error"] == result.test_error


@pytest.mark.parametrize(
    ("task", "cosine", "expected"),
    [(SparseTask(6, 1, 2.0), 0.7, 2.441), (SparseTask(10, 1, 5.0), 0.8, 17.34)],
)
def test_reference_values_of_the_capacity(task, cosine, expected):
    assert capacity(task, cosine=cosine, sharpness=1.0).value == pytest.approx(expected, rel=0.01)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    length=st.integers(2, 30),
    prior=st.floats(0.05, 0.95),
    cosine=st.floats(-1, 1),
    sharpness=st.floats(0, 10),
)
def test_without_signal_a_balanced_task_has_covers_capacity(length, prior, cosine, sharpness):
    balanced = capacity(
        SparseTask(length, 1, 0.0, 0.5), cosine=cosine, sharpness=sharpness, log2_points=10
    )
    assert balanced.value == pytest.approx(2.0, abs=0.03)
    skewed = capacity(SparseTask(length, 1, 0.0, prior), "pooled").value
    assert skewed >= 2.0 - 1e-9


def test_pooled_and_vectorized_differ_by_the_length():
    task = SparseTask(7, 2, 3.0, 0.3)
    each = capacity(task, "vectorized").value / capacity(task, "pooled").value
    assert each == pytest.approx(7, rel=1e-9)


def test_capacity_grows_with_strength_and_refines_to_one_percent():
    stars = [capacity(SparseTask(8, 1, s), cosine=0.9, sharpness=2.0).value for s in (0, 2, 4, 6)]
    assert stars == sorted(stars)
    fine = capacity(SparseTask(8, 1, 6.0), cosine=0.9, sharpness=2.0, log2_points=16).value
    assert stars[-1] == pytest.approx(fine, rel=0.01)


def test_flat_attention_has_the_pooled_capacity():
    task = SparseTask(5, 1, 3.0, 0.4)
    flat = capacity(task, cosine=0.3, sharpness=0.0).value
    assert flat == pytest.approx(capacity(task, "pooled").value, rel=0.003)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "dim"),
    [({"cosine": 0.7, "sharpness": 1.0}, 60), ({"model": "pooled"}, 60)],
)
def test_linear_programs_agree(options, dim):
    task = SparseTask(6, 1, 2.0, 0.4)
    star = capacity(task, **options).value
    low = simulate_capacity(task, 0.8 * star, dim=dim, replicates=20, seed=1, **options)
    high = simulate_capacity(task, 1.25 * star, dim=dim, replicates=20, seed=2, **options)
    assert low.mean["separable"] > 0.75
    assert high.mean["separable"] < 0.25


def test_it_says_its_setting():
    star = capacity(SparseTask(), cosine=0.8)
    assert star.to_frame().loc[0, "alpha_star"] == star.value
    assert star.to_frame().loc[0, "strength"] == 5.0
    assert "cosine 0.8" in str(star)
    assert "cosine" not in str(capacity(SparseTask(), "pooled"))
