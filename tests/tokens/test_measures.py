"""Every measure against itself: derivatives of its CGF, reweighted samples, extremes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnlimit as al
import outside

RNG = np.random.default_rng(11)
SKEW = RNG.standard_normal((4, 4))
MEASURES = {
    "gaussian": al.Gaussian(SKEW @ SKEW.T / 4, mean=[0.3, 0, -1, 0.5]),
    "flat gaussian": al.Gaussian(np.diag([1.0, 0.5, 0.0, 0.0])),
    "sphere": al.Sphere(4, 1.5),
    "circle": al.Sphere(2),
    "two points": al.Sphere(1, 0.7),
    "wide sphere": al.Sphere(40, 3.0),
    "ball": al.Ball(3, 2.0),
    "interval": al.Ball(1),
    "cube": al.Cube(3, 1.2),
    "signs": al.Signs(3, 0.8),
    "laplace": al.Laplace(3, 0.2),
    "mixture": al.Mixture([0.3, 0.7], [al.Gaussian(dim=3), al.Sphere(3, 2.0)]),
    "empirical": al.Empirical(RNG.standard_normal((30, 3))),
    "weighted": al.Empirical(RNG.standard_normal((5, 2)), [0.1, 0.2, 0.3, 0.4, 0.0]),
    **outside.MEASURES,
}
BOUNDED = [name for name in MEASURES if name not in ("gaussian", "laplace", "mixture", "normal")]


@st.composite
def tilts(draw, dim, largest=2.0):
    direction = np.random.default_rng(draw(st.integers(0, 10**6))).standard_normal(dim)
    return draw(st.floats(0, largest)) * direction / np.linalg.norm(direction)


@pytest.mark.parametrize("name", MEASURES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_tilted_moments_are_derivatives_of_the_cgf(name, data):
    tokens = MEASURES[name]
    t = data.draw(tilts(tokens.dim))
    h = 1e-4
    steps = h * np.eye(tokens.dim)
    gradient = (tokens.cgf(t + steps) - tokens.cgf(t - steps)) / (2 * h)
    np.testing.assert_allclose(tokens.tilted_mean(t), gradient, atol=2e-6)
    hessian = (tokens.tilted_mean(t + steps) - tokens.tilted_mean(t - steps)) / (2 * h)
    np.testing.assert_allclose(tokens.tilted_cov(t), hessian, atol=2e-6)
    np.testing.assert_allclose(tokens.tilted_cov(t), tokens.tilted_cov(t).T, atol=1e-12)


@pytest.mark.parametrize("name", MEASURES)
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_tilted_moments_are_those_of_reweighted_samples(name, data):
    tokens = MEASURES[name]
    t = data.draw(tilts(tokens.dim, largest=1.0))
    y = tokens.sample(60_000, np.random.default_rng(data.draw(st.integers(0, 10**6))))
    ratio = np.exp(y @ t - tokens.cgf(t))
    blocks = ratio.reshape(30, -1)
    stderr = blocks.mean(axis=1).std() / np.sqrt(30)
    assert abs(blocks.mean() - 1) < 5 * stderr + 1e-12
    for entry, values in (
        (tokens.tilted_mean(t), y),
        (
            tokens.tilted_cov(t),
            (y - tokens.tilted_mean(t))[:, :, None] * (y - tokens.tilted_mean(t))[:, None, :],
        ),
    ):
        weighted = (ratio.reshape(-1, *[1] * (values.ndim - 1)) * values).reshape(
            30, -1, entry.size
        )
        means = weighted.mean(axis=1)
        gap = np.abs(means.mean(axis=0) - entry.ravel())
        assert (gap <= 5.5 * means.std(axis=0) / np.sqrt(30) + 1e-9).all()


@pytest.mark.parametrize("name", MEASURES)
def test_no_tilt_gives_the_plain_moments(name):
    tokens = MEASURES[name]
    zero = np.zeros(tokens.dim)
    assert abs(tokens.cgf(zero)) < 1e-14
    np.testing.assert_allclose(tokens.tilted_mean(zero), tokens.mean(), atol=1e-14)
    np.testing.assert_allclose(tokens.tilted_cov(zero), tokens.cov(), atol=1e-12)


@pytest.mark.parametrize("name", MEASURES)
def test_batches_agree_with_single_tilts(name):
    tokens = MEASURES[name]
    t = np.random.default_rng(0).standard_normal((2, 3, tokens.dim))
    assert tokens.cgf(t).shape == (2, 3)
    np.testing.assert_allclose(tokens.tilted_mean(t)[1, 2], tokens.tilted_mean(t[1, 2]), rtol=1e-12)
    np.testing.assert_allclose(tokens.tilted_cov(t)[0, 1], tokens.tilted_cov(t[0, 1]), rtol=1e-12)


@pytest.mark.parametrize("name", MEASURES)
def test_quasi_random_points_have_the_right_moments(name):
    tokens = MEASURES[name]
    points = tokens.points(4096)
    scale = np.sqrt(np.trace(tokens.cov()))
    np.testing.assert_allclose(points.mean(axis=0), tokens.mean(), atol=0.02 * scale)
    np.testing.assert_allclose(
        np.cov(points.T).reshape(tokens.cov().shape), tokens.cov(), atol=0.03 * scale**2
    )
    np.testing.assert_array_equal(points, tokens.points(4096))


@pytest.mark.parametrize("name", [n for n in BOUNDED if n != "flat gaussian"])
def test_the_extreme_is_where_strong_tilts_lead(name):
    tokens = MEASURES[name]
    u = np.random.default_rng(5).standard_normal(tokens.dim)
    point = tokens.extreme(u)
    assert ((tokens.sample(2000, 0) @ u) <= point @ u + 1e-9).all()
    np.testing.assert_allclose(tokens.tilted_mean(1e5 * u), point, atol=1e-2)


def test_unbounded_measures_have_no_extreme():
    for tokens in (al.Gaussian(dim=2), al.Laplace(2), MEASURES["mixture"]):
        with pytest.raises(al.UnboundedSupport):
            tokens.extreme(np.ones(tokens.dim))
    flat = al.Gaussian(np.diag([1.0, 0.0]), mean=[1.0, 2.0])
    np.testing.assert_array_equal(flat.extreme([0, 1]), [1.0, 2.0])


@pytest.mark.parametrize("name", MEASURES)
def test_what_a_measure_says_of_itself(name):
    """Symmetry, atoms, reach and root, each against the measure's own points."""
    tokens = MEASURES[name]
    np.testing.assert_allclose(tokens.sqrt_cov() @ tokens.sqrt_cov(), tokens.cov(), atol=1e-12)
    t = np.random.default_rng(1).standard_normal((5, tokens.dim)) / 3
    if tokens.symmetric:
        np.testing.assert_allclose(tokens.cgf(t), tokens.cgf(-t), atol=1e-12)
    atoms = tokens.atoms()
    if atoms is not None:
        by_sum = np.log(np.exp(t @ atoms[0].T) @ atoms[1])
        np.testing.assert_allclose(tokens.cgf(t), by_sum, atol=1e-12)
    if tokens.tail.kind == "bounded":
        matrix = np.random.default_rng(2).standard_normal((2, tokens.dim))
        drawn = (tokens.sample(4000, 0) - tokens.mean()) @ matrix.T
        furthest = np.linalg.norm(drawn, axis=1).max()
        assert furthest <= tokens.reach(matrix) + 1e-9
        assert tokens.reach(matrix) < 3 * furthest
        assert tokens.reach(0 * matrix) == 0
    else:
        with pytest.raises(al.UnboundedSupport):
            tokens.reach(np.eye(tokens.dim))


@pytest.mark.parametrize("dim", [1, 2, 3, 50, 384, 4096])
@pytest.mark.parametrize("size", [1e-12, 1e-6, 1e-2, 1.0, 30.0, 1e3, 1e6])
def test_sphere_and_ball_are_stable_at_any_tilt_and_dimension(dim, size):
    t = size * np.ones(dim) / np.sqrt(dim)
    for tokens, inner in ((al.Sphere(dim), dim), (al.Ball(dim), dim + 2)):
        mean = np.linalg.norm(tokens.tilted_mean(t))
        assert 0 < mean <= 1
        assert 0 <= tokens.cgf(t) <= size
        if size**2 < 1e-3 * inner:  # the quadratic regime: K = |t|^2 / (2 radial_dim)
            np.testing.assert_allclose(tokens.cgf(t), size**2 / (2 * inner), rtol=1e-3)
            np.testing.assert_allclose(mean, size / inner, rtol=1e-3)
        if size > 1e3 * inner:  # near the pole: 1 - (radial_dim - 1) / (2 |t|)
            np.testing.assert_allclose(1 - mean, (inner - 1) / (2 * size), rtol=1e-2, atol=1e-12)
        if dim <= 50:
            eigenvalues = np.linalg.eigvalsh(tokens.tilted_cov(t))
            assert (eigenvalues >= 0).all()


@pytest.mark.parametrize("order", [0.0, 0.5, 24.0, 191.0, 2047.0])
def test_bessel_ratio_satisfies_its_riccati_equation(order):
    from attnlimit.tokens.spherical import bessel_ratio, bessel_ratio_slope

    x = np.geomspace(1e-3, 1e7, 60)
    ratio = bessel_ratio(order, x)
    h = 1e-5 * x
    numeric = (bessel_ratio(order, x + h) - bessel_ratio(order, x - h)) / (2 * h)
    slope = bessel_ratio_slope(order, x)
    good = numeric > 1e-5  # below it the difference quotient itself has no digits
    np.testing.assert_allclose(slope[good], numeric[good], rtol=1e-5)
    assert (np.diff(ratio) > 0).all()
    assert (slope > 0).all()


@pytest.mark.parametrize("make", [al.Cube, al.Signs])
@pytest.mark.parametrize("size", [1e-12, 1e-4, 0.29, 0.31, 5.0, 1e6])
def test_product_measures_are_stable(make, size):
    tokens = make(2)
    t = np.array([size, -size])
    mean = tokens.tilted_mean(t)
    assert (np.abs(mean) <= 1).all()
    assert mean[0] == -mean[1] > 0
    assert (np.diag(tokens.tilted_cov(t)) >= 0).all()
    assert 0 < tokens.cgf(t) <= 2 * size


def test_laplace_says_where_its_limit_ends():
    tokens = al.Laplace(2, scale=0.5)
    assert np.isfinite(tokens.cgf([1.99, 0.0]))
    with pytest.raises(al.NoLimitError, match=r"1/scale = 2"):
        tokens.tilted_mean([0.0, -2.0])


def test_a_ball_is_a_projected_sphere():
    t = np.array([0.4, -1.1, 2.0])
    lifted = np.concatenate([t, [0.0, 0.0]])
    np.testing.assert_allclose(al.Ball(3).cgf(t), al.Sphere(5).cgf(lifted), rtol=1e-13)
    np.testing.assert_allclose(
        al.Ball(3).tilted_mean(t), al.Sphere(5).tilted_mean(lifted)[:3], rtol=1e-13
    )


@pytest.mark.parametrize(
    "build",
    [
        lambda: al.Gaussian(),
        lambda: al.Gaussian(np.eye(2), dim=2),
        lambda: al.Gaussian([[1.0, 2.0], [2.0, 1.0]]),
        lambda: al.Gaussian([[1.0, 0.5], [0.0, 1.0]]),
        lambda: al.Gaussian(np.ones((2, 3))),
        lambda: al.Gaussian([[np.inf]]),
        lambda: al.Gaussian(dim=2, variance=-1),
        lambda: al.Gaussian(dim=0),
        lambda: al.Gaussian(dim=2, mean=[1.0]),
        lambda: al.Sphere(0),
        lambda: al.Sphere(2.5),
        lambda: al.Sphere(3, radius=-1),
        lambda: al.Ball(3, radius=np.nan),
        lambda: al.Cube(3, half_width=0),
        lambda: al.Mixture([], []),
        lambda: al.Mixture([0.5, 0.6], [al.Gaussian(dim=1)] * 2),
        lambda: al.Mixture([1.5, -0.5], [al.Gaussian(dim=1)] * 2),
        lambda: al.Mixture([1.0], [al.Gaussian(dim=1)] * 2),
        lambda: al.Mixture([0.5, 0.5], [al.Gaussian(dim=1), al.Sphere(2)]),
        lambda: al.Mixture([1.0], ["gaussian"]),
        lambda: al.Empirical(np.ones((0, 3))),
        lambda: al.Empirical([[np.nan, 1.0]]),
        lambda: al.Empirical(np.ones((2, 2)), [0.5, 0.6]),
        lambda: al.Gaussian(dim=2).cgf([1.0, 2.0, 3.0]),
        lambda: al.Gaussian(dim=2).cgf([np.nan, 0.0]),
        lambda: al.Gaussian(dim=2).sample(0),
        lambda: al.Gaussian(dim=2).sample(2.5),
        lambda: al.Sphere(2).extreme([0.0, 0.0]),
    ],
)
def test_bad_input_is_one_clear_sentence(build):
    with pytest.raises(al.BadInput) as error:
        build()
    assert str(error.value).endswith(".")
    assert "\n" not in str(error.value)
