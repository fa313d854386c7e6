"""The mean output over the law of the queries in one dimension: its limit, and draws."""

import numpy as np

from attnlimit.reproduce.clt import integrated_variance
from attnlimit.simulate.independent import line_errors


def test_the_central_limit():
    """n times the variance tends to (1 - H^4)^{-3/2}."""
    n = np.array([10**9])
    np.testing.assert_allclose(n * integrated_variance(0.3, n), (1 - 0.3**4) ** -1.5, rtol=1e-5)


def test_finite_n_against_draws():
    n = np.array([30, 400])
    seed = np.random.SeedSequence(0)
    errors = line_errors(np.array([1.2]), n, 1500, seed)[..., 0]
    squares = errors**2
    stderr = squares.std(axis=0) / np.sqrt(len(squares))
    assert (np.abs(squares.mean(axis=0) - integrated_variance(1.2, n)) < 4 * stderr).all()
