"""The covariance's first-order law: its constant, its next order, and where it is refused."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import binom

import attnlimit as al
from attnlimit.theory.covariance import gaussian_covariance_energy, population_responses
from attnlimit.theory.moments import WhitenedHead


def heads(dim, size, seed=0):
    rng = np.random.default_rng(seed)
    return al.Head(size * rng.standard_normal((dim, dim)), rng.standard_normal((3, dim)))


def influences(head, tokens, y):
    """psi_S of each row of y, by a quasi-random average over queries."""
    x = tokens.points(1 << 12)
    output, tilts = al.limit(head, tokens), head.tilts(x)
    centred, own = output(x) - output(x).mean(axis=0), output(y) - output(x).mean(axis=0)
    ratio = np.exp(y @ tilts.T - tokens.cgf(tilts)) / len(x)
    size = head.value_dim
    products = (output(x)[:, :, None] * centred[:, None, :]).reshape(len(x), -1)
    pull = (y @ head.V.T)[:, :, None] * (ratio @ centred)[:, None, :]
    pull -= (ratio @ products).reshape(-1, size, size)
    covariance = centred.T @ centred / len(x)
    return own[:, :, None] * own[:, None, :] - covariance + pull + np.swapaxes(pull, 1, 2)


@pytest.mark.parametrize(("dim", "size"), [(1, 0.4), (2, 0.2), (5, 0.05)])
def test_the_gaussian_constant_is_the_mean_square_of_the_influence(dim, size):
    rng = np.random.default_rng(1)
    tokens = al.Gaussian(np.eye(dim) + 0.2, mean=0.3 * rng.standard_normal(dim))
    head = heads(dim, size)
    drawn = (influences(head, tokens, tokens.sample(20_000, rng)) ** 2).sum(axis=(1, 2))
    constant = gaussian_covariance_energy(WhitenedHead.of(head, tokens))
    assert abs(drawn.mean() - constant) < 4 * drawn.std() / np.sqrt(len(drawn))
    curve = al.predict(head, tokens, "covariance", [10**7])
    np.testing.assert_allclose(curve.value * 1e7, constant)
    assert curve.numerical_error[0] < 1e-3 * curve.value[0]
    assert curve.method.startswith("first order")


@pytest.mark.parametrize(
    ("tokens", "head", "n"),
    [
        (al.Gaussian(dim=2), al.Head(0.5 * np.eye(2)), 300),
        (al.Gaussian(np.eye(3), mean=[1, 0.5, 0]), heads(3, 0.15, 2), 300),
        (al.Sphere(3), heads(3, 0.7), 60),
        (al.Sphere(4), al.Head(2 * np.eye(4)), 100),
        (al.Cube(3), heads(3, 0.4), 100),
        (al.Empirical(np.random.default_rng(0).standard_normal((80, 3))), heads(3, 0.4), 300),
    ],
)
def test_draws_differ_by_no_more_than_the_next_order(tokens, head, n):
    predicted = al.predict(head, tokens, "covariance", [n])
    measured = al.measure(head, tokens, "covariance", [n], 600, seed=3)
    room = 4 * measured.stderr + 1.5 * predicted.numerical_error
    assert (np.abs(predicted.value - measured.value) < room).all()
    assert (predicted.numerical_error <= 0.3 * predicted.value).all()


def all_draws(scores, values, weights, n):
    """E|Cov_n - Cov|^2 of two tokens, by how many of the n are the first of them."""
    first = np.arange(n + 1)
    limits = softmax(scores + np.log(weights), axis=1) @ values
    total = 0.0
    for k, chance in zip(first, binom.pmf(first, n, weights[0]), strict=True):
        counts = np.array([k, n - k])
        seen = np.exp(scores) * counts
        outputs = seen @ values / seen.sum(axis=1, keepdims=True)
        gap = np.cov(outputs.T, fweights=counts, bias=True)
        gap -= np.cov(limits.T, aweights=weights, bias=True)
        total += chance * (gap**2).sum()
    return total


def test_the_next_order_is_what_first_order_lacks():
    """Of two tokens, up to the order after it, which halves with twice the tokens."""
    rng = np.random.default_rng(3)
    scores, values = 0.5 * rng.standard_normal((2, 2)), rng.standard_normal((2, 2))
    weights = np.array([0.3, 0.7])
    many = np.repeat([0, 1], 60)
    spread_out = scores[np.ix_(many, many)], values[many], weights[many] / 60
    energy, (sample,) = population_responses(*spread_out)
    for n in (200, 400):
        lacking = all_draws(scores, values, weights, n) - energy / n
        order, error = sample.next_order(sample.influences(), n)
        assert order == pytest.approx(lacking, rel=4 / n)
        assert error < 0.1 * lacking


@pytest.mark.parametrize("n", [20, 100])
def test_the_stated_error_of_the_next_order_covers_its_scatter_over_tokens(n):
    rng = np.random.default_rng(4)
    angle = rng.uniform(0, 2 * np.pi, 120)
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    _, (whole,) = population_responses(3 * points @ points.T, points, np.full(120, 1 / 120))
    psi, found = whole.influences(), []
    for _ in range(30):
        some = rng.integers(120, size=40)
        sample = replace(
            whole,
            log_ratios=whole.log_ratios[:, some],
            probabilities=np.full(40, 1 / 40),
            values=whole.values[some],
            own_limits=whole.own_limits[some],
            own_log_ratios=whole.own_log_ratios[np.ix_(some, some)],
        )
        found.append(sample.next_order(psi[some], n))
    values, errors = np.array(found).T
    assert values.std() < np.sqrt((errors**2).mean()) < 2 * values.std()


def test_errors_at_the_first_and_last_n_are_those_of_each_alone():
    head, tokens, n = heads(3, 0.2, 5), al.Gaussian(dim=3), [300, 2000, 10**4]
    together = al.predict(head, tokens, "covariance", n)
    for k in (0, 2):
        alone = al.predict(head, tokens, "covariance", [n[k]])
        assert together.numerical_error[k] == pytest.approx(alone.numerical_error[0], rel=1e-9)
    assert (np.diff(together.numerical_error) < 0).all()


@pytest.mark.parametrize("size", [0.1, 0.15])
def test_refused_where_queries_see_themselves(size):
    """A = c I in many dimensions: the own key has a score of c |x|^2."""
    dim = 50 if size == 0.1 else 20
    with pytest.raises(al.BadInput, match=r"from n = [0-9]+"):
        al.predict(al.Head(size * np.eye(dim)), al.Gaussian(dim=dim), "covariance", [150, 400])


def test_refused_past_the_horizon():
    with pytest.raises(al.BadInput, match="horizon of 1"):
        al.predict(al.Head([[1.1]]), al.Gaussian(dim=1), "covariance", [10**6])


@pytest.mark.parametrize("size", [0.5, 2.0, 8.0])
def test_a_multiple_of_the_identity_on_the_sphere_is_predicted_or_refused(size):
    for dim in (2, 3, 10):
        try:
            curve = al.predict(al.Head(size * np.eye(dim)), al.Sphere(dim), "covariance", [20])
        except (al.BadInput, al.NotConverged):
            continue
        assert 0 < curve.numerical_error[0] <= 0.3 * curve.value[0]


def test_outputs_without_spread_have_no_error():
    curve = al.predict(al.Head(np.zeros((2, 2))), al.Gaussian(dim=2), "covariance", [10, 20])
    assert (curve.value == 0).all()


@pytest.mark.parametrize("scale", [1.5, 20.0])
def test_refused_where_the_first_order_vanishes(scale):
    """Both limits of two opposite signs are as long, so that the covariance moves by 1/n only."""
    head, tokens = al.Head([[scale]]), al.Signs(1)
    with pytest.raises(al.BadInput, match="at no n"):
        al.predict(head, tokens, "covariance", [50])
    assert al.measure(head, tokens, "covariance", [50], 100).value[0] > 1e-4


@pytest.mark.parametrize("tokens", [al.Gaussian(dim=2), al.Sphere(3)], ids=repr)
def test_the_n_that_a_refusal_names_is_the_first_that_is_known(tokens):
    head = al.Head(0.5 * np.eye(tokens.dim) * tokens.dim**0.5)
    with pytest.raises(al.BadInput, match="from n") as caught:
        al.predict(head, tokens, "covariance", [5])
    first = int(re.search(r"n = (\d+)", str(caught.value))[1])
    curve = al.predict(head, tokens, "covariance", [first])
    assert 0.15 < curve.numerical_error[0] / curve.value[0] <= 0.3
    with pytest.raises(al.BadInput, match="from n"):
        al.predict(head, tokens, "covariance", [2 * first // 3])
