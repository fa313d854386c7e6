"""The uniform bound holds in every draw, its envelope dominates, its constant is the supremum."""

import numpy as np
import pytest
from scipy.stats import chi2

import attnlimit as al
from attnlimit.theory.uniform.envelope import envelope

N = [100, 2000, 10**5, 10**9]


def matrices(dim, seed=0):
    rng = np.random.default_rng(seed)
    return al.Head(
        rng.standard_normal((dim, dim)) / np.sqrt(dim), rng.standard_normal((2, dim)) / np.sqrt(dim)
    )


def measures(dim):
    rng = np.random.default_rng(7)
    root = rng.standard_normal((dim, dim)) / np.sqrt(dim)
    return {
        "sphere": al.Sphere(dim, 1.5),
        "ball": al.Ball(dim, 2.0),
        "cube": al.Cube(dim, 1.0),
        "signs": al.Signs(dim, 0.8),
        "empirical": al.Empirical(rng.standard_normal((50, dim)) + 3),
        "compact mixture": al.Mixture([0.4, 0.6], [al.Sphere(dim), al.Cube(dim, 0.5)]),
        "gaussian": al.Gaussian(root @ root.T, mean=np.arange(dim)),
        "gaussian mixture": al.Mixture(
            [0.3, 0.7],
            [al.Gaussian(dim=dim, mean=np.full(dim, 0.5)), al.Gaussian(dim=dim, variance=0.3)],
        ),
        "mixed": al.Mixture([0.5, 0.5], [al.Sphere(dim), al.Gaussian(dim=dim, variance=0.2)]),
    }


def ball_points(dim, radius, count, seed=3):
    points = np.random.default_rng(seed).standard_normal((count, dim))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return radius * points * np.linspace(0.3, 1, count)[:, None]


@pytest.mark.parametrize("dim", [1, 2, 6])
@pytest.mark.parametrize("name", list(measures(2)))
def test_bound_is_never_violated(name, dim):
    tokens, head = measures(dim)[name], matrices(dim)
    rng = np.random.default_rng(11)
    for radius in (0.2, 1.0):
        result = al.uniform_bound(head, tokens, radius, N, 0.05)
        queries = np.concatenate([ball_points(dim, radius, 200), result.worst[None]])
        limits = al.limit(head, tokens)(queries)
        for n, bound in zip(N[:2], result.bound[:2], strict=True):
            for _ in range(15):
                outputs = head(queries, tokens.sample(n, rng))
                assert np.linalg.norm(outputs - limits, axis=1).max() <= bound


@pytest.mark.parametrize("radius", [0.9, 2.5])
@pytest.mark.parametrize("name", list(measures(2)))
def test_envelope_dominates_what_it_bounds(name, radius):
    dim = 4
    tokens, head = measures(dim)[name], matrices(dim)
    here = envelope(head, tokens, radius)
    tilts = head.tilts(ball_points(dim, radius, 300))
    crowding = tokens.cgf(2 * tilts) - 2 * tokens.cgf(tilts)
    assert crowding.max() <= here.log_crowding + 1e-9
    shift = (tokens.tilted_mean(2 * tilts) - tokens.tilted_mean(tilts)) @ head.V.T
    moment = head.V @ tokens.tilted_cov(2 * tilts) @ head.V.T
    moment = moment + shift[:, :, None] * shift[:, None, :]
    assert np.sqrt(np.linalg.eigvalsh(moment)[:, -1].max()) <= here.spread * (1 + 1e-9)
    covariance = head.V @ tokens.tilted_cov(tilts) @ head.V.T
    assert np.sqrt(np.linalg.eigvalsh(covariance)[:, -1].max()) <= here.limit_spread * (1 + 1e-9)
    jacobian = head.V @ tokens.tilted_cov(tilts) @ head.A
    assert np.linalg.norm(jacobian, 2, axis=(1, 2)).max() <= here.limit_lipschitz * (1 + 1e-9)
    inside = here.truncated(20.0)
    sample = tokens.sample(20_000, 5)
    peak = (sample @ tilts.T - tokens.cgf(tilts)).max()
    assert peak <= inside.log_peak + 1e-9
    assert np.linalg.norm((sample - tokens.mean()) @ head.V.T, axis=1).max() <= inside.value_radius
    assert np.linalg.norm((sample - tokens.mean()) @ head.A, axis=1).max() <= inside.score_slope


@pytest.mark.parametrize("dim", [1, 3, 10])
def test_noise_stays_within_its_radius_at_every_level(dim):
    """The square of a normal vector's length is chi-squared."""
    (part,) = envelope(al.Head(np.eye(dim)), al.Gaussian(dim=dim), 1.0).parts
    for level in (0.1, 1.0, 10.0, 100.0):
        assert chi2.logsf(part.noise_radius(np.eye(dim), level) ** 2, dim) <= -level


@pytest.mark.parametrize("radius", [0.1, 0.5, 3.0])
def test_signs_on_a_line_are_as_crowded_as_bounded_scores_can_be(radius):
    """E e^{2s} / (E e^s)^2 = cosh(2s) / cosh(s)^2 of scores that are -s or s."""
    here = envelope(al.Head([[1.0]]), al.Signs(1), radius)
    crowding = np.log(np.cosh(2 * radius)) - 2 * np.log(np.cosh(radius))
    assert here.log_crowding == pytest.approx(crowding, rel=1e-9)


@pytest.mark.parametrize("distance", [1.0, 30.0])
def test_the_limit_moves_by_the_distance_of_parts_squared(distance):
    """Of two narrow parts at -d and d, at the query zero: the variance of the tokens."""
    ends = [al.Gaussian(dim=1, mean=[sign * distance], variance=1e-4) for sign in (-1, 1)]
    here = envelope(al.Head([[1.0]]), al.Mixture([0.5, 0.5], ends), 1e-3)
    assert distance**2 <= here.limit_lipschitz <= 4.1 * distance**2


def test_truncation_probabilities_hold():
    head, tokens = matrices(3), al.Gaussian(np.diag([2.0, 1.0, 0.1]))
    radius, level = 0.5, 3.0
    here = envelope(head, tokens, radius)
    inside = here.truncated(level)
    tilt = head.tilts(envelope_direction(head, tokens) * radius)
    plain = tokens.sample(200_000, 0)
    for sample, allowed in (
        (plain, inside.escape),
        (plain + tokens.cov() @ tilt, inside.tilted_escape),
    ):
        outside = np.linalg.norm(sample @ head.V.T, axis=1) > inside.value_radius
        outside |= np.linalg.norm(sample @ head.A, axis=1) > inside.score_slope
        assert outside.mean() <= allowed


def envelope_direction(head, tokens):
    return np.linalg.svd(tokens.sqrt_cov() @ head.A)[2][0]


@pytest.mark.parametrize("name", ["sphere", "cube", "gaussian", "compact mixture"])
def test_asymptotic_constant_is_the_supremum(name):
    dim, radius = 3, 1.2
    tokens, head = measures(dim)[name], matrices(dim, seed=4)
    result = al.uniform_bound(head, tokens, radius, [10])
    traces = np.trace(
        al.fluctuation(head, tokens, ball_points(dim, radius, 800)).covariance, axis1=1, axis2=2
    )
    highest = np.sqrt(traces.max())
    assert highest <= result.constant * (1 + 1e-9)
    assert result.constant <= highest * 1.08
    at_worst = al.fluctuation(head, tokens, result.worst).covariance
    assert np.sqrt(np.trace(at_worst)) == pytest.approx(result.constant, rel=1e-9)


def test_gaussian_constant_in_closed_form():
    tokens = al.Gaussian(dim=4, variance=0.5)
    for radius in (0.5, 2.0):
        t2 = radius**2
        expected = np.sqrt(np.exp(0.5 * t2) * (4 * 0.5 + 0.25 * t2))
        result = al.uniform_bound(al.Head(np.eye(4)), tokens, radius, [10])
        assert result.constant == pytest.approx(expected, rel=1e-9)
        growth = 0.5 * radius + 0.25 * radius / (2 + 0.25 * t2)
        assert result.growth == pytest.approx(growth, rel=1e-5)


def test_bound_decays_like_root_n_near_its_constant():
    result = al.uniform_bound(al.Head(np.eye(3)), al.Sphere(3), 1.0, [10**4, 10**8, 10**12])
    assert not result.trivial.any()
    rates = -np.diff(np.log(result.bound)) / np.diff(np.log(result.n))
    assert ((rates > 0.45) & (rates < 0.56)).all()
    assert (result.ratio < 15).all()
    assert "C(R)" in str(result)
    assert list(result.to_frame()["n"]) == [10**4, 10**8, 10**12]


def test_bound_grows_exponentially_and_slower_than_the_crude_rate():
    head, tokens = al.Head(np.eye(3)), al.Sphere(3)
    radii = [1.0, 2.0, 4.0, 8.0]
    results = [al.uniform_bound(head, tokens, r, [10**12]) for r in radii]
    constants = [r.bound_constant for r in results]
    assert (np.diff(constants) > 0).all()
    assert all(r.bound_growth < 2.0 for r in results)  # e^{2s} would be 2
    assert (np.diff([r.bound[0] for r in results]) > 0).all()


def test_bound_growth_is_the_logarithmic_slope_of_its_constant():
    head, tokens = matrices(3), al.Ball(3, 2.0)
    below, at, above = (al.uniform_bound(head, tokens, r, [10**6]) for r in (0.99, 1.0, 1.01))
    slope = np.log(above.bound_constant / below.bound_constant) / 0.02
    assert at.bound_growth == pytest.approx(slope, rel=1e-3)


@pytest.mark.parametrize("n", [10**4, 10**8])
def test_more_directions_of_the_output_have_no_smaller_bound(n):
    tokens, V = al.Sphere(3), np.eye(3)
    one, two, three = (
        al.uniform_bound(al.Head(np.eye(3), V[:size]), tokens, 1.0, [n]) for size in (1, 2, 3)
    )
    assert one.bound[0] < two.bound[0] < three.bound[0]


def test_bound_is_invariant_under_translation():
    points = np.random.default_rng(0).standard_normal((30, 2))
    head = matrices(2)
    here = al.uniform_bound(head, al.Empirical(points), 1.0, [10**6])
    there = al.uniform_bound(head, al.Empirical(points + 100), 1.0, [10**6])
    assert there.bound == pytest.approx(here.bound, rel=1e-6)
    assert there.constant == pytest.approx(here.constant, rel=1e-6)


def test_small_n_gives_the_size_of_outputs_and_says_so():
    result = al.uniform_bound(al.Head(5 * np.eye(8)), al.Sphere(8), 2.0, [2, 10])
    assert result.trivial.all()
    assert result.bound == pytest.approx(2.0)


def test_extremes_stay_finite():
    head = al.Head(np.eye(3))
    for tokens in measures(3).values():
        for radius in (1e-6, 30.0, 1e5):
            result = al.uniform_bound(head, tokens, radius, [10, 10**12])
            assert np.isfinite(result.bound).all()
            assert (result.bound > 0).all()
    assert np.isinf(al.uniform_bound(head, al.Gaussian(dim=3), 100.0, [10]).constant)
    still = al.uniform_bound(head, al.Empirical(np.ones((1, 3))), 1.0, [10])
    assert still.bound[0] == 0
    assert still.constant == 0


def test_laplace_is_refused_with_the_reason():
    with pytest.raises(al.NoLimitError, match="past the bound 1"):
        al.uniform_bound(al.Head(np.eye(2)), al.Laplace(2), 1.0, [10])
    with pytest.raises(al.BadInput, match="heavier than Gaussian"):
        al.uniform_bound(al.Head(np.eye(2)), al.Laplace(2), 0.5, [10])
    mixture = al.Mixture([0.5, 0.5], [al.Laplace(2), al.Sphere(2)])
    with pytest.raises(al.BadInput, match="Laplace"):
        al.uniform_bound(al.Head(np.eye(2)), mixture, 0.5, [10])


@pytest.mark.parametrize(
    ("radius", "n", "delta"), [(-1, [10], 0.1), (1, [1], 0.1), (1, [10], 0), (1, [10.5], 0.1)]
)
def test_bad_input(radius, n, delta):
    with pytest.raises(al.BadInput):
        al.uniform_bound(al.Head(np.eye(2)), al.Sphere(2), radius, n, delta)


def test_the_ball_and_the_scores_scale_together():
    head, tokens = al.Head([[0.5, 0.2], [0.0, 0.4]]), al.Gaussian(dim=2)
    wide = al.uniform_bound(head, tokens, 2.0, [1000]).bound
    narrow = al.uniform_bound(head.scaled(2.0), tokens, 1.0, [1000]).bound
    np.testing.assert_allclose(wide, narrow, rtol=1e-9)
