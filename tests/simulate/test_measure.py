import itertools

import numpy as np
import pytest
import torch

import attnlimit as al
from attnlimit.simulate.independent import line_errors
from attnlimit.simulate.statistics import Prefix, covariance_square
from attnlimit.simulate.sweep import sets_of, sweep
from every_sampler import sampled_errors

LINE = al.Gaussian(dim=1)


def head(H):
    return al.Head([[H]])


@pytest.mark.slow
@pytest.mark.parametrize("H", [0.2, 0.5, 0.8])
def test_mean_agrees_with_the_two_query_law(H):
    n = [200, 400, 800, 1600]
    measured = al.measure(head(H), LINE, "mean", n, 100, seed=3)
    predicted = al.predict(head(H), LINE, "mean", n)
    assert (np.abs(measured.value - predicted.value) < 4 * measured.stderr).all()
    if H < 0.75:  # the influence's square has a finite variance, so its control helps
        assert (measured.diagnostics.variance_reduction > 1).all()


def test_mean_covariance_is_reached_for_large_n():
    n = [1000, 2000]
    measured = al.measure(head(0.5), LINE, "mean", n, 300, seed=1)
    limit = al.mean_covariance(head(0.5), LINE)[0, 0]
    assert (np.abs(measured.value * measured.n - limit) < 4 * measured.stderr * measured.n).all()


@pytest.mark.parametrize("sigma", [0.5, 1.5, 4.0])
def test_pointwise_agrees_with_the_exact_law(sigma):
    n = np.array([30, 100, 300])
    x = np.array([[sigma, 0.0]])
    measured = al.measure(al.Head(np.eye(2)), al.Gaussian(dim=2), "pointwise", n, 1500, x=x)
    law = al.gaussian_law(sigma, n)
    expected = law.mse + law.participation
    assert (np.abs(measured.value - expected) < 4 * measured.stderr).all()
    bias = measured.diagnostics.bias[:, 0]
    error = measured.diagnostics.bias_stderr[:, 0]
    assert (np.abs(bias[:, 0] - law.bias) < 4 * error[:, 0]).all()
    assert (np.abs(bias[:, 1]) < 4 * error[:, 1]).all()


def test_errors_of_the_bias_fall_like_the_root_of_the_draws():
    few, many = (
        al.measure(head(0.5), LINE, "pointwise", [30, 100], draws, x=[[1.0]]).diagnostics
        for draws in (200, 3200)
    )
    np.testing.assert_allclose(few.bias_stderr / many.bias_stderr, 4.0, rtol=0.25)


def test_pointwise_at_random_queries_agrees_with_prediction():
    tokens = al.Gaussian(dim=1, variance=0.8)
    measured = al.measure(head(0.9), tokens, "pointwise", [50, 200], 300)
    predicted = al.predict(head(0.9), tokens, "pointwise", [50, 200])
    assert (np.abs(measured.value - predicted.value) < 4 * measured.stderr).all()


@pytest.mark.parametrize("statistic", ["mean", "covariance"])
@pytest.mark.parametrize("H", [0.05, 0.6, 1.5])
def test_asking_few_queries_leaves_no_bias(statistic, H):
    rng = np.random.default_rng(0)
    tokens, sharp = al.Gaussian(dim=3), al.Head(H * np.linalg.qr(rng.standard_normal((3, 3)))[0])
    few, whole = (
        al.measure(sharp, tokens, statistic, [60, 200], 100, queries=q, control=False)
        for q in (20, "all")
    )
    noise = np.hypot(few.stderr, whole.stderr)
    assert (np.abs(few.value - whole.value) < 4 * noise).all()


def test_few_queries_of_few_tokens_leave_no_bias():
    sharp, tokens = al.Head(0.4 * np.eye(2)), al.Gaussian(dim=2)
    few, whole = (
        al.measure(sharp, tokens, "covariance", [8], 6000, queries=q, control=False, seed=q or 1)
        for q in (5, 8)
    )
    assert abs(few.value - whole.value)[0] < 4 * np.hypot(few.stderr, whole.stderr)[0]
    assert few.stderr[0] < 0.05 * few.value[0]


@pytest.mark.parametrize("statistic", ["mean", "covariance", "mean_norm", "covariance_norm"])
@pytest.mark.parametrize("queries", [30, "all"])
def test_controls_do_not_move_the_value(statistic, queries):
    rng = np.random.default_rng(1)
    tokens = al.Gaussian(dim=4, variance=0.5)
    sharp = al.Head(rng.standard_normal((4, 4)), rng.standard_normal((2, 4)))
    with_controls, plain = (
        al.measure(sharp, tokens, statistic, [50, 150], 60, queries=queries, control=control)
        for control in (True, False)
    )
    assert (np.abs(with_controls.value - plain.value) < 4 * plain.stderr).all()


def test_norms_are_the_norms_of_the_squares():
    tokens = al.Gaussian(dim=2)
    sharp = al.Head(0.5 * np.eye(2))
    n = np.array([20, 1000])
    names = ["mean", "mean_norm", "covariance", "covariance_norm"]
    draws = sweep(sharp, tokens, names, n, 30, np.random.SeedSequence(0), queries=10**6, sets=1)
    np.testing.assert_allclose(draws["mean_norm"].values ** 2, draws["mean"].values)
    np.testing.assert_allclose(draws["covariance_norm"].values ** 2, draws["covariance"].values)


def test_values_are_those_of_a_direct_computation():
    tokens, sharp = al.Gaussian(dim=2, mean=[0.3, -0.2]), al.Head(0.7 * np.eye(2), [[1.0, 2.0]])
    seed = np.random.SeedSequence(5)
    draws = sweep(sharp, tokens, ["mean", "covariance"], np.array([15, 40]), 3, seed)
    limit_mean = sharp.V @ (np.eye(2) + sharp.A) @ tokens.mean()
    limit_cov = sharp.V @ sharp.A @ sharp.A.T @ sharp.V.T
    for row, child in enumerate(np.random.SeedSequence(5).spawn(3)):
        sets = tokens.sample(40 * sets_of(40), np.random.default_rng(child)).reshape(-1, 40, 2)
        for column, n in enumerate((15, 40)):
            means, covariances = [], []
            for y in sets:
                outputs = sharp(y[:n], y[:n])
                gap = outputs.mean(axis=0) - limit_mean
                spread = np.cov(outputs.T, bias=True).reshape(1, 1) - limit_cov
                means.append(gap @ gap)
                covariances.append((spread**2).sum())
            assert draws["mean"].values[row, column] == pytest.approx(np.mean(means), rel=1e-4)
            square = np.mean(covariances)
            assert draws["covariance"].values[row, column] == pytest.approx(square, rel=1e-3)


def test_the_square_over_some_queries_is_on_average_that_over_all():
    """For every set of 6 of 12 tokens, up to a part of the order of 1 in 6 * 12."""
    outputs = torch.randn(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    sets = torch.tensor(list(itertools.combinations(range(12), 6)))
    none = torch.zeros(2, 2, dtype=torch.double)
    whole, some = (
        covariance_square(Prefix(12, rows, none, none), 0.5 * torch.eye(2).double()).mean()
        for rows in (outputs[None], outputs[sets])
    )
    assert float(some) == pytest.approx(float(whole), rel=0.05)


def test_same_seed_same_draws_for_every_temperature():
    first = al.measure(head(0.5), LINE, "mean", [50, 100], 20, seed=9, control=False)
    again = al.measure(head(0.5), LINE, "mean", [50, 100], 20, seed=9, control=False)
    other = al.measure(head(0.51), LINE, "mean", [50, 100], 20, seed=9, control=False)
    fresh = al.measure(head(0.5), LINE, "mean", [50, 100], 20, seed=10, control=False)
    np.testing.assert_array_equal(first.value, again.value)
    assert (np.abs(other.value / first.value - 1) < 0.1).all()
    assert not np.array_equal(first.value, fresh.value)


def test_nested_points_are_correlated_and_say_so():
    curve = al.measure(head(0.3), LINE, "mean", [100, 130], 300, control=False)
    correlation = curve.covariance[0, 1] / np.sqrt(np.diag(curve.covariance)).prod()
    assert 0.5 < correlation < 1


@pytest.mark.slow
@pytest.mark.parametrize(("H", "beta"), [(1.5, 0.3077), (2.0, 0.2), (3.0, 0.1)])
def test_slopes_past_the_horizon(H, beta):
    n = np.geomspace(2e3, 2e5, 4).astype(int)
    errors = line_errors(np.array([H]), n, 400, np.random.SeedSequence(2))[..., 0]
    slope = np.polyfit(np.log(n), np.log(np.abs(errors).mean(axis=0)), 1)[0]
    assert -slope == pytest.approx(beta, abs=0.06)


def test_uniform_finds_what_a_fine_grid_finds():
    tokens, plain = al.Sphere(2), al.Head(np.eye(2))
    curve = al.measure(plain, tokens, "uniform", [40], 2, seed=4, radius=3.0)
    rows = []
    for child in np.random.SeedSequence(4).spawn(2):
        keys = tokens.sample(40, np.random.default_rng(child))
        angles, lengths = np.meshgrid(np.linspace(0, 2 * np.pi, 361), np.linspace(0, 3, 61))
        x = np.stack([lengths * np.cos(angles), lengths * np.sin(angles)], axis=-1).reshape(-1, 2)
        rows.append(np.linalg.norm(plain(x, keys) - tokens.tilted_mean(x), axis=1).max())
    assert curve.value[0] == pytest.approx(np.mean(rows), rel=2e-3)
    assert curve.numerical_error[0] < 1e-3


def test_uniform_never_violates_its_bound():
    tokens, plain = al.Sphere(2), al.Head(np.eye(2))
    curve = al.measure(plain, tokens, "uniform", [200, 800], 10, radius=1.0)
    bound = al.uniform_bound(plain, tokens, 1.0, [200, 800], 0.05)
    assert (curve.value < bound.bound).all()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((LINE, "variance", [10, 20], 5), {}, "one of"),
        ((LINE, "mean", [20, 10], 5), {}, "increase"),
        ((LINE, "mean", [], 5), {}, "empty"),
        ((LINE, "mean", [10, 20], 1), {}, "at least 2"),
        ((LINE, "mean", [10, 20], 5, -1), {}, "seed"),
        ((al.Gaussian(dim=2), "mean", [10], 5), {}, "dimension"),
        ((LINE, "uniform", [10], 5), {}, "radius"),
        ((LINE, "mean", [10], 5), {"x": [[1.0]]}, "pointwise"),
        (("tokens", "mean", [10], 5), {}, "token measure"),
    ],
)
def test_wrong_input_is_refused_in_one_sentence(arguments, options, message):
    with pytest.raises(al.BadInput, match=message):
        al.measure(head(0.5), *arguments, **options)


def test_tokens_without_a_limit_are_refused():
    with pytest.raises(al.NoLimitError):
        al.measure(head(1.5), al.Laplace(1), "pointwise", [10, 20], 5, x=[[1.0]])


def test_other_sources_measure_themselves():
    class Source:
        def measure_curve(self, statistic, n=None, *, head=0):
            return statistic, n, head

    assert al.measure(Source(), "mean", [5], head=2) == ("mean", [5], 2)
    with pytest.raises(al.BadInput, match=r"head=0.*'draws'"):
        al.measure(Source(), "mean", [5], draws=3)
    with pytest.raises(al.BadInput, match=r"control=True: got an unexpected .*'draws'"):
        al.measure(head(0.5), LINE, "mean", [10], 5, draws=5)
    with pytest.raises(al.BadInput, match="Head"):
        al.measure("nothing", LINE, "mean", [10], 5)


def test_sampled_keys_agree_with_the_law_of_schemes():
    from attnlimit.theory.one_query.kept import kept_error

    rng = np.random.default_rng(0)
    sequence = rng.standard_normal((30, 2))
    plain = al.Head(np.eye(2))
    sampler = al.Keep(al.SinksAndRecent(2, 4), sample=8, weighted=True)
    errors = sampled_errors(plain, sequence, [29], sampler, 4000)
    probabilities = np.full(30, 8 / 24)
    probabilities[[0, 1, 26, 27, 28, 29]] = 1.0
    law = kept_error(plain, al.Empirical(sequence), sequence[29:], probabilities, weighted=True)
    squares = (errors[:, 0] ** 2).sum(axis=1)
    assert abs(squares.mean() - law.mse[0]) < 4 * squares.std() / np.sqrt(len(squares))
