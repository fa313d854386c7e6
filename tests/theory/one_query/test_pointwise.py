"""The exact law against brute force, against the delta method, and against itself."""

import numpy as np
import pytest

import attnlimit as al
import outside
from attnlimit.theory.one_query.quadrature import tabulate

RNG = np.random.default_rng(3)
POINTS = RNG.standard_normal((40, 3))
MEASURES = {
    "gaussian": al.Gaussian(np.diag([1.0, 0.5, 0.1]), mean=[0.3, 0.0, 1.0]),
    "sphere": al.Sphere(3, 1.5),
    "circle": al.Sphere(2),
    "ball": al.Ball(4),
    "cube": al.Cube(3, 1.2),
    "signs": al.Signs(5, 0.7),
    "laplace": al.Laplace(3, 0.15),
    "mixture": al.Mixture(
        [0.3, 0.7], [al.Gaussian(dim=3), al.Gaussian(dim=3, variance=0.2, mean=[1, 1, 0])]
    ),
    "empirical": al.Empirical(POINTS),
    "known needle": outside.MEASURES["known needle"],
    "normal": outside.MEASURES["normal"],
}
SCALES = (0.5, 3.0)
SIZES = (4, 25)


def problem(name, scale):
    tokens = MEASURES[name]
    rng = np.random.default_rng(len(name))
    matrix = rng.standard_normal((tokens.dim, tokens.dim)) / np.sqrt(tokens.dim)
    head = al.Head(scale * matrix, rng.standard_normal((2, tokens.dim)))
    return head, tokens, rng.standard_normal(tokens.dim) / np.sqrt(tokens.dim)


def simulate(head, tokens, x, n, replicates, seed=0):
    rng = np.random.default_rng(seed)
    tilt = head.tilts(x)
    outputs = []
    for _ in range(10):
        keys = tokens.sample(replicates // 10 * n, rng).reshape(-1, n, tokens.dim)
        scores = keys @ tilt
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        outputs.append((weights[:, None, :] @ keys)[:, 0] @ head.V.T)
    return np.concatenate(outputs) - al.limit(head, tokens)(x)


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", MEASURES)
def test_exact_law_is_what_a_hundred_thousand_draws_give(name, scale, n):
    """44 cases: error and bias within 4 standard errors."""
    head, tokens, x = problem(name, scale)
    errors = simulate(head, tokens, x, n, 100_000)
    squares = (errors**2).sum(axis=1)
    error = al.pointwise_error(head, tokens, x, [n])
    assert abs(error.mse[0, 0] - squares.mean()) < 4 * squares.std() / np.sqrt(len(squares))
    stderr = errors.std(axis=0) / np.sqrt(len(errors))
    assert (np.abs(error.bias[0, 0] - errors.mean(axis=0)) < 4 * stderr).all()


@pytest.mark.parametrize("name", MEASURES)
def test_the_delta_method_is_the_large_n_limit(name):
    head, tokens, x = problem(name, 0.7)
    n = [10**5, 10**7]
    exact = al.pointwise_error(head, tokens, x, n)
    delta = al.pointwise_error(head, tokens, x, n, method="delta")
    gap = np.abs(exact.mse / delta.mse - 1)[0]
    assert gap[0] < 1e-3
    assert gap[1] < max(gap[0] / 30, 1e-7)  # the error of the delta method is of order 1/n
    np.testing.assert_allclose(exact.bias[0, 1], delta.bias[0, 1], rtol=2e-3, atol=1e-12)


@pytest.mark.parametrize("name", MEASURES)
def test_one_sweep_serves_every_n(name):
    head, tokens, x = problem(name, 2.0)
    n = [2, 3, 10, 10**3, 10**6, 10**9, 10**12]
    together = al.pointwise_error(head, tokens, x, n)
    for k in (0, 2, 5):
        alone = al.pointwise_error(head, tokens, x, [n[k]])
        np.testing.assert_allclose(together.mse[0, k], alone.mse[0, 0], rtol=1e-7)
    assert (np.diff(together.mse[0]) < 0).all()
    assert ((together.participation > 0) & (together.participation <= 1)).all()


def test_gaussian_through_its_score_law_is_the_universal_law():
    from attnlimit.theory.one_query.pointwise import integrate_score_law

    head, tokens, x = problem("gaussian", 4.0)
    n = np.array([3, 50, 10**6])
    t = head.tilts(x)
    mse, bias, _ = integrate_score_law(tokens.score_law(t), head.V, al.limit(head, tokens)(x), n)
    universal = al.pointwise_error(head, tokens, x, n)
    np.testing.assert_allclose(mse, universal.mse[0], rtol=1e-9)
    np.testing.assert_allclose(bias, universal.bias[0], rtol=1e-6, atol=1e-12)


def test_signs_on_a_line_by_hand():
    """d = 1, n = 2: both keys agree or p = 1/(1 + e^{-2 t})."""
    t = 0.9
    error = al.pointwise_error(al.Head([[1.0]]), al.Signs(1), [[t]], [2])
    mixed = np.tanh(t)
    by_hand = (1 - mixed) ** 2 / 4 + (1 + mixed) ** 2 / 4
    np.testing.assert_allclose(error.mse[0, 0], by_hand, rtol=1e-9)
    np.testing.assert_allclose(error.bias[0, 0, 0], mixed / 2 - mixed, rtol=1e-9)


def test_tokens_rotated_with_the_head_give_the_same_error():
    rng = np.random.default_rng(8)
    rotation = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    matrix, x = rng.standard_normal((3, 3)), rng.standard_normal(3)
    plain = al.pointwise_error(al.Head(matrix), al.Sphere(3), x, [7])
    turned = al.pointwise_error(al.Head(rotation @ matrix, rotation.T), al.Sphere(3), x, [7])
    np.testing.assert_allclose(plain.mse, turned.mse, rtol=1e-10)


def test_many_queries_and_printing():
    head, tokens, _ = problem("sphere", 1.0)
    queries = np.random.default_rng(0).standard_normal((4, 3))
    error = al.pointwise_error(head, tokens, queries, [2, 20])
    assert error.mse.shape == (4, 2)
    assert error.bias.shape == (4, 2, 2)
    assert len(error.to_frame()) == 8
    assert "exact" in str(error)


def test_very_sharp_scores_on_the_sphere():
    """Scores up to 14,000 in fifty dimensions: between the hard maximum and one token."""
    head = al.Head(14_000 * np.eye(50))
    x = np.eye(50)[0]
    error = al.pointwise_error(head, al.Sphere(50), x, [10**4, 10**5])
    sharper = al.pointwise_error(head.scaled(2), al.Sphere(50), x, [10**4, 10**5])
    assert (error.participation > 0.98).all()
    np.testing.assert_allclose(error.mse, sharper.mse, rtol=0.01)


def test_infinite_fluctuation_where_the_limit_exists():
    head, tokens = al.Head([[1.0]]), al.Laplace(1, scale=1.0)
    delta = al.pointwise_error(head, tokens, [[0.6]], [100], method="delta")
    assert np.isinf(delta.mse).all()
    exact = al.pointwise_error(head, tokens, [[0.6]], [100])
    assert np.isfinite(exact.mse).all()
    with pytest.raises(al.NoLimitError):
        al.pointwise_error(head, tokens, [[1.1]], [100])


def test_a_table_that_misses_its_normalisation_raises():
    score, weight = np.array([0.0, 1.0]), np.array([0.5, 0.4])  # weights that lost some mass
    table = tabulate(score, weight, np.zeros((2, 0)), np.zeros((2, 0)), np.array([5]))
    with pytest.raises(al.NotConverged, match="sum to"):
        table.meeting(np.array([5]))


@pytest.mark.parametrize(
    "arguments",
    [
        (al.Head(np.eye(2)), al.Sphere(3), np.ones(2), [5]),
        (al.Head(np.eye(3)), al.Sphere(3), np.ones(2), [5]),
        (al.Head(np.eye(3)), al.Sphere(3), [1, np.nan, 0], [5]),
        (al.Head(np.eye(3)), al.Sphere(3), np.ones(3), [1]),
        (al.Head(np.eye(3)), al.Sphere(3), np.ones(3), [[5]]),
        (al.Head(np.eye(3)), al.Sphere(3), np.ones(3), [2.5]),
        (al.Head(1e9 * np.eye(3)), al.Gaussian(dim=3), np.ones(3), [5]),
        (al.Head(1e9 * np.eye(3)), al.Cube(3), np.ones(3), [5]),
    ],
)
def test_bad_input(arguments):
    with pytest.raises(al.BadInput):
        al.pointwise_error(*arguments)
    with pytest.raises(al.BadInput):
        al.pointwise_error(al.Head(np.eye(2)), al.Sphere(2), np.ones(2), [5], method="guess")
