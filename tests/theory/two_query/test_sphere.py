"""Moments of attention over tokens on the sphere: two queries, and the mean."""

import numpy as np
import pytest

import attnlimit as al
from attnlimit.theory.two_query.isotropic import joint_moment, single_moment
from attnlimit.theory.two_query.mean import mean_error
from attnlimit.theory.two_query.sphere import SphereKeys, sphere_mean_error


def unit_rows(rng, *shape):
    rows = rng.standard_normal(shape)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def random_head(dim, scale, seed=0):
    rng = np.random.default_rng(seed)
    return al.Head(
        scale * rng.standard_normal((dim, dim)) / np.sqrt(dim),
        rng.standard_normal((dim, dim)) / np.sqrt(dim),
    )


def outputs_of(keys, tilts, draws):
    """Outputs (tilts, draws, d_v) of attention over each draw of keys."""
    rows = []
    for tilt in tilts:
        scores = draws @ tilt
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        rows.append((weights[:, None, :] @ draws)[:, 0] @ keys.values.T)
    return np.array(rows)


PAIRS = [
    (2, 20, 3.0, 0.8),
    (2, 30, 40.0, 0.9),
    (3, 2, 2.0, 0.3),
    (3, 40, 5.0, -0.9),
    (3, 100, 300.0, 0.97),
    (4, 60, 0.0, 0.5),
    (10, 100, 8.0, 0.5),
    (10, 100, 60.0, 0.9),
    (50, 100, 141.0, 0.4),
    (50, 100, 100.0, 0.9999),
]


@pytest.mark.parametrize(("dim", "n", "size", "cosine"), PAIRS)
def test_two_queries_that_are_keys_too(dim, n, size, cosine):
    """E[Gamma_n . Gamma_n'] and E|Gamma_n|^2 given the queries, within 4 errors of draws."""
    rng = np.random.default_rng(n + dim)
    rotation, values = (
        np.linalg.qr(rng.standard_normal((dim, dim)))[0],
        rng.standard_normal((3, dim)),
    )
    keys = SphereKeys(size * rotation, values, np.zeros(dim))
    x, other = unit_rows(rng, 2, dim)
    other -= (other @ x) * x
    own = np.stack([x, cosine * x + np.sqrt(1 - cosine**2) * other / np.linalg.norm(other)])
    tilts = keys.tilts(own)
    limits = keys.limit_height(size) * tilts / max(size, 1e-300) @ keys.values.T
    count = 200_000 // n
    draws = unit_rows(rng, count, n, dim)
    draws[:, 1] = own[0]
    square = (outputs_of(keys, tilts[:1], draws)[0] ** 2).sum(axis=1)
    predicted = single_moment(keys, tilts[0], own[:1], np.array([n]))[0]
    assert abs(square.mean() - predicted) < 4 * square.std() / np.sqrt(count) + 1e-4 * abs(
        predicted
    )
    draws[:, 0] = own[1]
    first, second = outputs_of(keys, tilts, draws)
    joint = (first * second).sum(axis=1)
    predicted = joint_moment(keys, tilts, own, np.array([n]))[0] + limits[0] @ limits[1]
    assert abs(joint.mean() - predicted) < 4 * joint.std() / np.sqrt(count) + 1e-4 * abs(predicted)


def test_many_keys_bring_two_outputs_to_their_limits():
    """n E[Delta.Delta'] tends to the delta method's value, so nothing is lost at n = 10^9."""
    keys = SphereKeys.of(random_head(5, 4.0), 1.0)
    own = unit_rows(np.random.default_rng(1), 2, 5)
    n = np.array([10**7, 10**9])
    result = joint_moment(keys, keys.tilts(own), own, n)
    np.testing.assert_allclose(result[0] * n[0], result[1] * n[1], rtol=0.01)


@pytest.mark.parametrize("dim", [3, 10, 50])
def test_frozen_queries_are_reached_by_extrapolation(dim):
    """E|Gamma_n|^2 far past the cap is that of the hard maximum: one key, of length one."""
    n = np.array([1000])
    keys = SphereKeys(np.eye(dim), np.eye(dim), np.zeros(dim))
    tilt, own = 1e9 * np.eye(dim)[0], np.eye(dim)[1:2]
    sizes, shares = np.array(keys.cuts(n, 1e9, pair=False)).T
    assert len(sizes) == 3
    np.testing.assert_allclose(shares.sum(), 1)
    results = [single_moment(keys, tilt * s / 1e9, own, n) for s in sizes]
    np.testing.assert_allclose(shares @ np.array(results), 1, rtol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dim", "scale", "draws"),
    [(3, 0.5, 400), (3, 1e4, 400), (10, 12, 400), (10, 1e4, 400)],
)
def test_the_mean_against_measurements(dim, scale, draws):
    """Within 4 standard errors, and within 5 % beyond one of them, from H < 1 to frozen."""
    head, tokens, n = random_head(dim, scale, dim), al.Sphere(dim), np.array([100])
    predicted = mean_error(head, tokens, n)
    measured = al.measure(head, tokens, "mean", n, draws, seed=5)
    gap = np.abs(predicted.mse - measured.value)
    assert (gap < 4 * np.hypot(measured.stderr, predicted.numerical_error)).all()
    assert (gap < 0.1 * measured.value + 2 * measured.stderr).all()
    assert (predicted.numerical_error < 0.06 * predicted.mse).all()


@pytest.mark.slow
@pytest.mark.parametrize("scale", [100, 1e5])
def test_the_papers_setting(paper_head, scale):
    """d = 50: the mean within 5 % beyond the measurement's own error; the covariance is refused."""
    head, tokens, n = paper_head(scale), al.Sphere(50), [1000]
    predicted = al.predict(head, tokens, "mean", n)
    measured = al.measure(head, tokens, "mean", n, 30, seed=6)
    gap = abs(predicted.root[0] / measured.root[0] - 1)
    assert gap < 0.05 + 2 * measured.root_stderr[0] / measured.root[0]
    with pytest.raises((al.BadInput, al.NotConverged), match="use measure"):
        al.predict(head, tokens, "covariance", n)


def test_the_radius_only_rescales():
    """Tokens of radius r under A and V are those of radius one under r^2 A and r V."""
    head, n = random_head(3, 3.0), np.array([50])
    result = sphere_mean_error(head, 2.0, n, 12)
    other = sphere_mean_error(al.Head(4 * head.A, 2 * head.V), 1.0, n, 12)
    np.testing.assert_allclose(result.mse, other.mse, rtol=1e-9)


@pytest.mark.parametrize("dim", [1, 2])
def test_few_dimensions(dim):
    """The sphere of R^1 is a random sign; that of R^2 a circle."""
    head = al.Head(1.5 * np.eye(dim))
    predicted = al.predict(head, al.Sphere(dim), "mean", [30, 60])
    measured = al.measure(head, al.Sphere(dim), "mean", [30, 60], 1000, seed=7)
    gap = np.abs(predicted.value - measured.value)
    assert (gap < 4 * np.hypot(measured.stderr, predicted.numerical_error)).all()


def test_all_tilts_of_a_circle_may_be_parallel():
    """A key's coordinate across the tilts is part of its value."""
    head = al.Head(0.6 * np.outer([0.8, 0.6], [1.0, 0.0]), [[0.3, 1.0]])
    predicted = al.predict(head, al.Sphere(2), "mean", [8, 64])
    measured = al.measure(head, al.Sphere(2), "mean", [8, 64], 400, seed=3)
    gap = np.abs(predicted.value - measured.value)
    assert (gap < 4 * np.hypot(measured.stderr, predicted.numerical_error)).all()
    assert (gap < 0.03 * measured.value).all()


@pytest.mark.parametrize("dim", [2, 3])
def test_a_head_without_scores_averages(dim):
    curve = al.predict(al.Head(np.zeros((dim, dim))), al.Sphere(dim), "mean", [10, 100])
    np.testing.assert_allclose(curve.value, [0.1, 0.01], rtol=0.01)


def test_a_head_that_looks_at_itself_copies():
    """A = lambda I, lambda huge: every token attends to itself, and m_n is the mean of n tokens."""
    curve = al.predict(al.Head(1e6 * np.eye(5)), al.Sphere(5), "mean", [50, 100])
    np.testing.assert_allclose(curve.value, [0.02, 0.01], rtol=0.05)
