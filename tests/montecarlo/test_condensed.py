"""Few points stand for very many keys: cells on a line, a grid in two or three dimensions."""

import numpy as np
import pytest
from scipy.special import softmax

from attnlimit.head import Head
from attnlimit.montecarlo.condensed import condense
from attnlimit.montecarlo.independent import integrated_errors, line_errors
from attnlimit.montecarlo.line import line_outputs
from attnlimit.tokens import Gaussian, Sphere

SIZES = np.array([50, 3000])


@pytest.mark.parametrize("slope", [0.3, 3.0, 30.0])
def test_cells_give_what_their_keys_give(slope):
    keys = np.random.default_rng(0).standard_normal(SIZES[-1])
    tilts = slope * np.linspace(-7, 7, 21)
    found = line_outputs(tilts, keys, SIZES)
    for output, n in zip(found, SIZES, strict=True):
        exact = softmax(np.outer(tilts, keys[:n]), axis=1) @ keys[:n]
        np.testing.assert_allclose(output, exact, atol=3e-6)


def test_slopes_together_err_as_each_alone():
    slopes = np.array([0.5, 2.0])
    both = line_errors(slopes, SIZES, 5, np.random.SeedSequence(3))
    for column, slope in enumerate(slopes):
        head, seed = Head([[slope]]), np.random.SeedSequence(3)
        alone = integrated_errors(head, Gaussian(dim=1), np.zeros(1), SIZES, 5, seed)[..., 0]
        np.testing.assert_allclose(both[..., column], alone, atol=1e-5)


@pytest.mark.parametrize(
    ("tokens", "reach"), [(Gaussian(dim=1), 3.0), (Gaussian(dim=2), 2.0), (Sphere(3), 8.0)]
)
def test_a_grid_gives_the_tilted_moments_of_its_keys(tokens, reach):
    rng = np.random.default_rng(1)
    keys = tokens.sample(SIZES[-1], rng)
    tilts = rng.standard_normal((7, tokens.dim))
    tilts *= reach / np.linalg.norm(tilts, axis=1, keepdims=True)
    for grid, n in zip(condense(keys, SIZES, reach), SIZES, strict=True):
        weights = softmax(tilts @ keys[:n].T, axis=1)
        mean = weights @ keys[:n]
        square = np.einsum("qn,ni,nj->qij", weights, keys[:n], keys[:n])
        found, covariance = grid.moments(tilts)
        np.testing.assert_allclose(found, mean, atol=1e-6)
        exact = square - mean[:, :, None] * mean[:, None, :]
        np.testing.assert_allclose(covariance, exact, atol=1e-6)


def test_no_grid_where_it_would_be_too_large():
    assert condense(Sphere(3).sample(100, np.random.default_rng(2)), SIZES[:1], 1000.0) is None
