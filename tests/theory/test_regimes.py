"""Fractions of queries by regime, and their thresholds."""

import numpy as np
import pytest

import attnlimit as al


@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_gaussian_fractions_against_drawn_queries(mean):
    rng = np.random.default_rng(0)
    root = rng.standard_normal((4, 4))
    tokens = al.Gaussian(root @ root.T, mean=np.full(4, mean))
    head = al.Head(0.2 * rng.standard_normal((4, 4)))
    n = [20, 1000, 10**6]
    exact = al.regimes(head, tokens, n)
    queries = tokens.sample(100_000, 1)
    tilts = head.tilts(queries)
    sigma = np.sqrt(np.einsum("ni,ij,nj->n", tilts, tokens.cov(), tilts))
    for i, threshold in enumerate(np.sqrt(2 * np.log(n))):
        for entry, counted in (
            (exact.gaussian[i], sigma < threshold / 2),
            (exact.frozen[i], sigma > threshold),
        ):
            assert abs(entry - counted.mean()) < 4.5 * counted.std() / np.sqrt(len(sigma)) + 1e-6
    assert exact.typical_sigma == pytest.approx(np.sqrt((sigma**2).mean()), rel=0.02)


def test_fractions_sum_to_one_and_move_slowly_with_n():
    tokens = al.Gaussian(dim=50, variance=0.1)
    result = al.regimes(al.Head(7 * np.eye(50)), tokens, [10**2, 10**4, 10**8])
    assert result.gaussian + result.stable + result.frozen == pytest.approx(1)
    assert (np.diff(result.frozen) <= 0).all()
    assert (np.diff(result.gaussian) >= 0).all()
    # Squaring n doubles log n: the Gaussian threshold at n^4 is the frozen one at n.
    assert result.gaussian[2] == pytest.approx(1 - result.frozen[0], abs=1e-9)
    assert "frozen" in str(result)
    assert list(result.to_frame().columns[:4]) == ["n", "gaussian", "stable", "frozen"]


def test_participation_tells_the_regimes_apart():
    """The frozen regime is where E sum p^2 stays of order one."""
    n = 10**6
    threshold = np.sqrt(2 * np.log(n))
    law = al.gaussian_law([0.3 * threshold, 2 * threshold], n)
    assert law.participation[0] < 1e-4
    assert law.participation[1] > 0.4


def test_other_measures():
    points = np.random.default_rng(0).standard_normal((500, 3))
    head = al.Head(2 * np.eye(3))
    empirical = al.regimes(head, al.Empirical(points), [100])
    sigma = np.linalg.norm(points @ np.linalg.cholesky(4 * np.cov(points.T, bias=True)), axis=1)
    assert empirical.frozen[0] == pytest.approx((sigma > np.sqrt(2 * np.log(100))).mean())
    sphere = al.regimes(al.Head(20 * np.eye(3)), al.Sphere(3), [100, 10**9])
    assert sphere.frozen[0] == 1  # every query has sigma = 20/sqrt(3)
    cube = al.regimes(al.Head(6 * np.eye(1)), al.Cube(1), [10**3])
    sigma_edge = np.sqrt(2 * np.log(10**3)) / (6 / np.sqrt(3))
    assert cube.frozen[0] == pytest.approx(max(0.0, 1 - sigma_edge), abs=1e-3)
    assert cube.error < 1e-3


def test_degenerate_and_bad_input():
    tokens = al.Gaussian(np.diag([1.0, 0.0]), mean=[0.0, 2.0])
    still = al.regimes(al.Head(np.zeros((2, 2))), tokens, [10])
    assert still.gaussian[0] == 1
    # Scores that come from the constant coordinate only: every query has the same sigma.
    fixed = al.regimes(al.Head([[0.0, 3.0], [0.0, 0.0]]), tokens, [10])
    assert fixed.frozen[0] == 1
    for scale, gaussian in ((1e-6, 1.0), (1e6, 0.0)):
        extreme = al.regimes(al.Head(scale * np.eye(4)), al.Gaussian(dim=4), [2, 10**6])
        assert extreme.gaussian == pytest.approx(gaussian, abs=1e-12)
    with pytest.raises(al.BadInput):
        al.regimes(al.Head(np.eye(3)), tokens, [10])
    with pytest.raises(al.BadInput):
        al.regimes(al.Head(np.eye(2)), tokens, [1])
