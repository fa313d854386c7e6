"""The best of n tokens: exact laws against simulation, closed forms and one another."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

import attnlimit as al
from attnlimit.theory.low_temperature.corner import by_inversion, by_subsets, corner_table
from attnlimit.theory.low_temperature.hardmax import maximum_nodes

REPLICATES = 3000


def simulate(head, tokens, x, n, target, scale, seed):
    rng = np.random.default_rng(seed)
    tilt = head.tilts(x)
    outputs, heights = np.empty((REPLICATES, head.value_dim)), np.empty(REPLICATES)
    draws = tokens.sample(n * REPLICATES, rng).reshape(REPLICATES, n, tokens.dim)
    for i, keys in enumerate(draws):
        scores = keys @ tilt
        best = scores >= scores.max() - 1e-9 * np.abs(scores).max()
        outputs[i] = head.V @ keys[best].mean(axis=0) / scale
        heights[i] = scores.max()
    return outputs - target, heights


RNG = np.random.default_rng(2)
TIED = RNG.integers(-1, 2, (40, 3)).astype(float)
CASES = {
    "gaussian": (al.Gaussian(dim=4, variance=0.5, mean=np.arange(4.0)), None),
    "singular gaussian": (al.Gaussian(np.diag([2.0, 1.0, 0.0])), None),
    "circle": (al.Sphere(2, 1.5), None),
    "sphere": (al.Sphere(7), None),
    "point pair": (al.Sphere(1), None),
    "interval": (al.Ball(1), None),
    "ball": (al.Ball(5, 2.0), None),
    "cube 1": (al.Cube(1), None),
    "cube 3": (al.Cube(3, 2.0), None),
    "cube 9": (al.Cube(9), None),
    "cube 20": (al.Cube(20), None),
    "cube with a free coordinate": (al.Cube(3), [1.0, 0.0, -2.0]),
    "signs": (al.Signs(6), None),
    "signs with ties": (al.Signs(6, 2.0), [1.0, 1.0, 0.0, -2.0, -2.0, -2.0]),
    "many signs": (al.Signs(30), list(np.ones(30))),
    "empirical": (al.Empirical(RNG.standard_normal((40, 3))), None),
    "empirical with ties": (al.Empirical(TIED), [1.0, 1.0, 0.0]),
}


@pytest.mark.parametrize("name", list(CASES))
def test_exact_law_against_simulation(name):
    tokens, x = CASES[name]
    rng = np.random.default_rng(5)
    dim = tokens.dim
    head = al.Head(np.eye(dim), rng.standard_normal((2, dim)))
    x = np.array(rng.standard_normal(dim) if x is None else x)
    sizes = [2, 9, 60]
    exact = al.hardmax_error(head, tokens, x, sizes)
    for i, n in enumerate(sizes):
        errors, heights = simulate(head, tokens, x, n, exact.target[0], exact.scale[i], seed=i)
        square = (errors**2).sum(axis=1)
        root = np.sqrt(REPLICATES)
        slack = 1e-9  # draws where the winner never varies
        assert abs(square.mean() - exact.mse[0, i]) < 4.5 * square.std() / root + slack
        assert abs(heights.mean() - exact.height[0, i]) < 4.5 * heights.std() / root + slack
        spread = 4.5 * errors.std(axis=0) / root + slack
        assert (np.abs(errors.mean(axis=0) - exact.bias[0, i]) < spread).all()


@pytest.mark.parametrize("n", [2, 5, 1000, 10**6, 10**12])
def test_normal_maximum_against_quadrature(n):
    height = float(al.hardmax_error(al.Head([[1.0]]), al.Gaussian(dim=1), [1.0], [n]).height[0, 0])
    top = float(stats.norm.isf(1 / n)) if n > 2 else 0.0

    def integrand(s):
        log_power = (n - 1) * stats.norm.logcdf(s)
        return s * n * np.exp(log_power + stats.norm.logpdf(s))

    expected = quad(integrand, top - 4, top + 6, limit=400, epsabs=1e-13)[0]
    if n <= 5:
        expected = quad(integrand, -9, 9, limit=400)[0]
    assert height == pytest.approx(expected, rel=1e-8)


def test_smallest_cases_in_closed_form():
    line = al.Head([[1.0]])
    assert al.hardmax_error(line, al.Gaussian(dim=1), [3.0], [2]).height[0, 0] == pytest.approx(
        3 / np.sqrt(np.pi)
    )
    n = np.array([2, 7, 10**6])
    uniform = al.hardmax_error(line, al.Cube(1), [1.0], n)
    assert uniform.height[0] == pytest.approx((n - 1) / (n + 1))
    assert uniform.mse[0] == pytest.approx(4 * 2 / ((n + 1.0) * (n + 2.0)))
    shadow = al.hardmax_error(line, al.Ball(1), [1.0], n)
    assert shadow.mse[0] == pytest.approx(uniform.mse[0])
    # Archimedes: heights on the sphere of R^3 are uniform.
    sphere = al.hardmax_error(al.Head(np.eye(3)), al.Sphere(3), [0, 0, 1.0], n)
    assert sphere.height[0] == pytest.approx((n - 1) / (n + 1))
    signs = al.hardmax_error(line, al.Signs(1), [1.0], n)
    assert signs.mse[0] == pytest.approx(4 * 0.5**n)
    assert signs.predicted_mse[0] == pytest.approx(4 * 0.5**n)


def test_maximum_nodes_are_exponential():
    nodes = maximum_nodes(10)
    exponential = -10 * nodes.log_below
    assert nodes.weight @ exponential == pytest.approx(1, abs=1e-12)
    assert nodes.weight @ exponential**3 == pytest.approx(6, abs=1e-9)


def test_corner_law_two_ways():
    rng = np.random.default_rng(0)
    slopes = rng.uniform(0.5, 1.5, 9)
    form = np.cov(rng.standard_normal((9, 40)))
    nodes = np.linspace(0.3, 0.95, 7) * slopes.sum() / 2
    inverted = [by_inversion(slopes, form, node[None]) for node in nodes]
    for subset, other in zip(
        by_subsets(slopes, form, nodes)[:4],
        (np.concatenate(part) for part in zip(*inverted, strict=True)),
        strict=True,
    ):
        assert subset == pytest.approx(other, rel=1e-6)
    table = corner_table(slopes, form, 10**12)
    assert table.best_of(10**12) @ table.density == pytest.approx(1, abs=1e-9)


def test_polynomial_rates_of_bounded_tokens():
    n = [10**9, 10**10, 10**11, 10**12]
    for tokens, rate in ((al.Sphere(3), 1 / 2), (al.Sphere(5), 1 / 4), (al.Cube(3), 1 / 3)):
        x = np.arange(1.0, tokens.dim + 1)
        result = al.hardmax_error(al.Head(np.eye(tokens.dim)), tokens, x, n)
        assert result.local_rate[0] == pytest.approx(rate, rel=2e-3)
        assert result.mse[0] == pytest.approx(result.predicted_mse[0], rel=5e-3)


def test_logarithmic_rate_of_gaussian_tokens():
    n = np.array([10**3, 10**6, 10**12])
    result = al.hardmax_error(al.Head(np.eye(50)), al.Gaussian(dim=50), np.eye(50)[0], n)
    leading = np.sqrt(49 / (2 * np.log(n)))
    assert result.root[0] == pytest.approx(leading, rel=5e-3)
    assert result.root[0] == pytest.approx(np.sqrt(result.predicted_mse[0]), rel=1e-3)
    assert "normal maximum" in str(result)
    # in one dimension nothing but the height is left, and its Gumbel law
    line = al.hardmax_error(al.Head(np.eye(1)), al.Gaussian(dim=1), [1.0], n)
    off = line.mse[0] / line.predicted_mse[0] - 1
    assert (np.abs(np.diff(off)) > 0.01).all()
    assert (np.diff(off) < 0).all()
    assert 0 < off[-1] < 0.04


def test_rotation_and_scale():
    rng = np.random.default_rng(3)
    rotation = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    x = rng.standard_normal(4)
    plain = al.hardmax_error(al.Head(np.eye(4)), al.Sphere(4), x, [7])
    turned = al.hardmax_error(al.Head(rotation, rotation.T), al.Sphere(4), x, [7])
    assert turned.mse == pytest.approx(plain.mse)
    sharper = al.hardmax_error(al.Head(3 * np.eye(4)), al.Sphere(4), x, [7])
    assert sharper.mse == pytest.approx(plain.mse)
    assert sharper.height == pytest.approx(3 * plain.height)


def test_unequal_cube_scores_are_right_or_refused():
    head = al.Head(np.eye(4))
    with pytest.raises(al.NotConverged, match="unequal"):
        al.hardmax_error(head, al.Cube(4), [1.0, 1e-3, 1e-6, 1.0], [100])
    # A coordinate that hardly matters is nearly free.
    small = al.hardmax_error(head, al.Cube(4), [1.0, 1e-3, 1.0, 1.0], [100])
    free = al.hardmax_error(head, al.Cube(4), [1.0, 0.0, 1.0, 1.0], [100])
    # The target counts the free coordinate at its mean, the other at its end: E U^2 differs by 1.
    assert small.mse[0, 0] == pytest.approx(free.mse[0, 0] + 1, abs=0.02)


def test_refusals():
    head = al.Head(np.eye(2))
    with pytest.raises(al.BadInput, match="zero"):
        al.hardmax_error(head, al.Sphere(2), [0.0, 0.0], [10])
    with pytest.raises(al.BadInput, match="Laplace"):
        al.hardmax_error(head, al.Laplace(2), [1.0, 0.0], [10])
    with pytest.raises(al.BadInput, match="vary"):
        al.hardmax_error(head, al.Gaussian(np.diag([1.0, 0.0])), [0.0, 1.0], [10])
    with pytest.raises(al.BadInput, match="levels"):
        al.hardmax_error(al.Head(np.eye(40)), al.Signs(40), np.arange(1.0, 41), [10])
    with pytest.raises(al.BadInput):
        al.hardmax_error(head, al.Sphere(2), [1.0, 0.0], [1])


def test_ties_leave_an_error_of_first_order_in_1_over_n():
    head, n = al.Head(np.eye(2)), [400, 4000]
    result = al.hardmax_error(head, al.Signs(2), [1.0, 0.0], n)
    np.testing.assert_allclose(result.predicted_mse, result.mse, rtol=0.01)
