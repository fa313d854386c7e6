"""The predicted curve against measurements, in the paper's setting and in others."""

import numpy as np
import pytest

import attnlimit as al

ROWS = [(20, 4000), (30, 1000), (30, 4000), (50, 1000), (50, 4000)]


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "n"), ROWS)
def test_the_mean_in_the_papers_setting(paper_head, paper_tokens, scale, n):
    """Within 3 % of a measurement that has about 1 % error itself."""
    head = paper_head(scale)
    predicted = al.predict(head, paper_tokens, "mean", [n]).root[0]
    measured = al.measure(head, paper_tokens, "mean", [n], 400 if n < 2000 else 160, seed=1)
    assert measured.root_stderr[0] < 0.015 * measured.root[0]
    assert (
        abs(predicted / measured.root[0] - 1)
        < 0.03 + 2 * measured.root_stderr[0] / measured.root[0]
    )


@pytest.mark.parametrize("scale", [0.5, 20, 50])
def test_pointwise_over_queries(paper_head, paper_tokens, scale):
    head = paper_head(scale)
    n = [100, 1000]
    predicted = al.predict(head, paper_tokens, "pointwise", n)
    measured = al.measure(head, paper_tokens, "pointwise", n, 300, seed=3)
    assert (np.abs(predicted.value - measured.value) < 4 * measured.stderr).all()


def test_local_rates_are_slopes_of_the_curve(paper_head, paper_tokens):
    n = np.unique(np.geomspace(1000, 30_000, 9).astype(int))
    for statistic in ("mean", "pointwise"):
        curve = al.predict(paper_head(30), paper_tokens, statistic, n)
        slopes = -np.gradient(np.log(curve.root), np.log(n))
        np.testing.assert_allclose(curve.local_rate[1:-1], slopes[1:-1], atol=0.01)
        assert (curve.stderr == 0).all()
        assert (curve.numerical_error < 0.05 * curve.value).all()
        alone = al.predict(paper_head(30), paper_tokens, statistic, [int(n[4])])
        np.testing.assert_allclose(alone.value, curve.value[4], rtol=0.02)


def test_past_the_horizon_the_slope_is_not_the_exponent(paper_head, paper_tokens):
    """In fifty dimensions queries are frozen long before the asymptotic exponent shows."""
    curve = al.predict(paper_head(50), paper_tokens, "mean", [1000, 30_000])
    asymptotic = al.rate(paper_head(50), paper_tokens, "mean").beta
    assert curve.local_rate[0] > asymptotic + 0.03
    assert asymptotic < curve.local_rate[1] < curve.local_rate[0]


@pytest.mark.parametrize("n", [[2], [2, 3], [10**12], [2, 10**12]])
@pytest.mark.parametrize("statistic", ["mean", "pointwise"])
def test_any_n_works(n, statistic):
    head = al.Head(0.3 * np.eye(2))
    curve = al.predict(head, al.Gaussian(dim=2), statistic, n)
    assert np.isfinite(curve.value).all()
    assert (curve.value > 0).all()
    if n[-1] == 10**12:
        np.testing.assert_allclose(curve.local_rate[-1], 0.5, atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    "tokens",
    [
        al.Sphere(3, 1.5),
        al.Cube(3),
        al.Empirical(np.random.default_rng(0).standard_normal((80, 3))),
    ],
)
@pytest.mark.parametrize("statistic", ["mean", "pointwise"])
def test_other_measures(tokens, statistic):
    rng = np.random.default_rng(4)
    head = al.Head(0.7 * rng.standard_normal((3, 3)), rng.standard_normal((2, 3)))
    n = [10, 100]
    predicted = al.predict(head, tokens, statistic, n)
    measured = al.measure(head, tokens, statistic, n, 400, seed=5)
    room = 4 * (measured.stderr + predicted.numerical_error)
    assert (np.abs(predicted.value - measured.value) < room).all()


def test_a_head_without_scores_averages():
    """A = 0: the mean output is the mean of the values, with variance tr(VSV')/n exactly."""
    values = np.array([[1.0, 2.0]])
    curve = al.predict(al.Head(np.zeros((2, 2)), values), al.Gaussian(dim=2), "mean", [10, 100])
    expected = 5.0 / np.array([10, 100])
    assert (np.abs(curve.value - expected) < 4 * curve.numerical_error + 1e-3 * expected).all()
    assert (curve.numerical_error < 0.03 * expected).all()


@pytest.mark.parametrize(
    "arguments",
    [
        ("not a head", al.Gaussian(dim=2), "mean", [10]),
        (al.Head(np.eye(2)), "tokens", "mean", [10]),
        (al.Head(np.eye(2)), al.Gaussian(dim=3), "mean", [10]),
        (al.Head(np.eye(2)), al.Gaussian(dim=2), "median", [10]),
        (al.Head(np.eye(2)), al.Gaussian(dim=2), "mean", [1]),
        (al.Head(np.ones((2, 3))), al.Gaussian(dim=2), "mean", [10]),
    ],
)
def test_bad_input(arguments):
    with pytest.raises(al.BadInput):
        al.predict(*arguments)


def test_a_wrong_keyword_names_the_right_ones():
    head, tokens = al.Head(np.eye(2)), al.Gaussian(dim=2)
    with pytest.raises(al.BadInput, match=r"takes tokens, statistic, n, method='exact': .*'metod'"):
        al.predict(head, tokens, "mean", [10], metod="delta")
    with pytest.raises(al.BadInput, match="missing a required argument: 'n'"):
        al.predict(head, tokens, "mean")
    named = al.predict(head, tokens=tokens, statistic="pointwise", n=[10])
    np.testing.assert_array_equal(named.value, al.predict(head, tokens, "pointwise", [10]).value)

    class Source:
        def predict_curve(self, statistic, n=None, *, head=0):
            return statistic, n, head

    assert al.predict(Source(), "mean", [5], head=2) == ("mean", [5], 2)
    with pytest.raises(al.BadInput, match=r"statistic, n=None, head=0: .*'heads'"):
        al.predict(Source(), "mean", [5], heads=2)


@pytest.mark.parametrize("scale", [0.1, 0.4])
@pytest.mark.parametrize("statistic", ["mean", "pointwise"])
def test_the_delta_method_is_the_end_of_the_exact_curve(statistic, scale):
    rng = np.random.default_rng(1)
    head = al.Head(scale * rng.standard_normal((2, 2)), rng.standard_normal((3, 2)))
    for tokens in (al.Gaussian(np.diag([1.0, 0.5]), mean=[0.4, -0.2]), al.Sphere(2)):
        delta = al.predict(head, tokens, statistic, [10**7], method="delta")
        exact = al.predict(head, tokens, statistic, [10**7])
        room = 4 * (delta.numerical_error + exact.numerical_error) + 1e-3 * exact.value
        assert (np.abs(delta.value - exact.value) < room).all()
        assert delta.local_rate == 0.5


def test_the_delta_method_is_refused_where_errors_fall_slower():
    with pytest.raises(al.BadInput, match='use method="exact"'):
        al.predict(al.Head([[0.8]]), al.Gaussian(dim=1), "pointwise", [10], method="delta")
    with pytest.raises(al.BadInput, match='use method="exact"'):
        al.predict(al.Head([[1.1]]), al.Gaussian(dim=1), "mean", [10], method="delta")


def test_the_delta_method_of_gaussian_tokens_is_the_exact_law_at_large_n():
    """Queries that carry the average are rare, and must be drawn all the same."""
    head = al.Head([[0.5, 0.2], [-0.1, 0.3]])
    tokens = al.Gaussian([[1.0, 0.2], [0.2, 0.6]], mean=[0.4, -0.3])
    first, exact = (
        al.predict(head, tokens, "pointwise", [10**10], method=m) for m in ("delta", "exact")
    )
    np.testing.assert_allclose(first.value, exact.value, rtol=0.005)


def test_rare_queries_are_in_the_error_of_their_average():
    z = np.linspace(-14, 14, 8001)
    weight = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    for scale in (0.3, 0.5, 0.6, 1.5):
        for n in (50, 10**7):
            truth = weight @ np.asarray(al.gaussian_law(scale * np.abs(z), n).mse)
            curve = al.predict(al.Head([[scale]]), al.Gaussian(dim=1), "pointwise", [n])
            assert abs(curve.value[0] - truth) < 3 * curve.numerical_error[0] + 1e-3 * truth
