import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnlimit as al
from attnlimit.theory.one_query.gaussian import gaussian_table
from attnlimit.theory.one_query.quadrature import tabulate
from attnlimit.tokens.score_law import standard_normal_grid

CASES = [  # sigma, n, bias, mse, participation: an independent implementation's values
    (1.0, 100, -0.02553848, 0.046588381, 0.02553848),
    (3.0, 1000, -0.40832094, 0.34592365, 0.13610698),
    (5.0, 1000, -1.9527247, 3.9908358, 0.39054493),
    (2.0, 10**12, -1.091963e-10, 2.7299074e-10, 5.459815e-11),
]


@pytest.mark.parametrize(("sigma", "n", "bias", "mse", "participation"), CASES)
def test_independent_values(sigma, n, bias, mse, participation):
    law = al.gaussian_law(sigma, n)
    np.testing.assert_allclose(law.bias, bias, rtol=1e-6)
    np.testing.assert_allclose(law.mse, mse, rtol=1e-6)
    np.testing.assert_allclose(law.participation, participation, rtol=1e-6)


def test_reference_file(reference):
    section = reference["exact_law_gaussian"]
    for case in section["cases"]:
        law = al.gaussian_law(case["sigma"], case["n"])
        for name in ("bias", "mse", "participation"):
            np.testing.assert_allclose(getattr(law, name), case[name], rtol=section["rtol"])


@settings(max_examples=40, deadline=None)
@given(st.floats(0.2, 50), st.integers(2, 10**12))
def test_attention_is_its_limit_shrunk_by_the_participation(sigma, n):
    """E Gamma_n = (1 - E sum p_i^2) sigma, from the bias integral itself."""
    table = gaussian_table(sigma, np.array([n]))
    (once,), _ = table.meeting(np.array([n]))
    assert abs(table.linear[:, 0] @ once + sigma * (table.square @ once)) < 1e-10 * max(sigma, 1)


@pytest.mark.parametrize("sigma", [0.625, 2.0, 30.0])
def test_evenly_spaced_scores_give_what_any_nodes_give(sigma):
    n = np.array([2, 50, 10**6, 10**12])
    g, weight = standard_normal_grid(sigma)
    centred = (g - sigma)[:, None]
    any_nodes = tabulate(sigma * g, weight / weight.sum(), centred, centred**2, n)
    (once, _), even = any_nodes.meeting(n), al.gaussian_law(sigma, n)
    np.testing.assert_allclose(even.participation, once @ any_nodes.square, rtol=1e-11)


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 50), st.integers(2, 10**12))
def test_the_law_stays_inside_its_bounds(sigma, n):
    law = al.gaussian_law(sigma, n)
    assert (1 - 1e-9) / n <= law.participation <= 1 + 1e-9
    assert law.bias <= 0
    assert law.mse >= law.bias**2 * (1 - 1e-9)


def test_two_keys_by_direct_integration():
    """n = 2: p = 1/(1 + e^{-sigma (y1 - y2)}), an integral over one normal."""
    sigma = 1.7
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / weights.sum()
    p = 1 / (1 + np.exp(-sigma * np.sqrt(2) * nodes))
    law = al.gaussian_law(sigma, 2)
    np.testing.assert_allclose(law.participation, weights @ (p**2 + (1 - p) ** 2), rtol=1e-9)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.0])
def test_large_n_is_the_delta_method(sigma):
    n = np.array([10**6, 10**8, 10**10])
    law = al.gaussian_law(sigma, n)
    gaps = np.abs(n * law.mse / (np.exp(sigma**2) * (1 + sigma**2)) - 1)
    assert gaps[0] < 0.02
    assert gaps[1] < max(gaps[0] / 20, 1e-9)  # the next term is of order 1/n


def test_frozen_queries_pick_the_maximum():
    """For sigma far beyond sqrt(2 log n) the output is the largest of n normals."""
    n = 1000
    draws = np.random.default_rng(0).standard_normal((4000, n)).max(axis=1)
    law = al.gaussian_law(50.0, n)
    assert abs(50 + law.bias - draws.mean()) < 0.05
    assert law.participation > 0.9


def test_arguments_broadcast():
    law = al.gaussian_law([[0.5], [3.0]], [10, 100, 1000])
    assert law.mse.shape == (2, 3)
    np.testing.assert_allclose(law.mse[1, 2], al.gaussian_law(3.0, 1000).mse, rtol=1e-12)
    assert len(law.to_frame()) == 6
    assert "sigma" in str(law)


def test_full_covariance_against_simulation():
    rng = np.random.default_rng(1)
    direction, sigma, n = np.array([0.6, 0.8]), 2.0, 30
    keys = rng.standard_normal((100_000, n, 2))
    scores = sigma * keys @ direction
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    output = (weights[:, :, None] * keys).sum(axis=1) / weights.sum(axis=1, keepdims=True)
    law = al.gaussian_law(sigma, n)
    along = np.outer(direction, direction)
    result = (law.mse - law.bias**2) * along + law.participation * (np.eye(2) - along)
    products = (output - output.mean(axis=0))[:, :, None] * (output - output.mean(axis=0))[:, None]
    stderr = products.std(axis=0) / np.sqrt(len(output))
    assert (np.abs(products.mean(axis=0) - result) < 4 * stderr).all()


@pytest.mark.parametrize(
    ("sigma", "n"),
    [(-1, 10), (np.nan, 10), (1, 1), (1, 2.5), (1, []), (1, "ten"), (1e9, 10), (1, True)],
)
def test_bad_input(sigma, n):
    with pytest.raises(al.BadInput):
        al.gaussian_law(sigma, n)


def test_participation_tells_the_regimes_apart():
    """The frozen regime is where E sum p^2 stays of order one."""
    n = 10**6
    threshold = np.sqrt(2 * np.log(n))
    law = al.gaussian_law([0.3 * threshold, 2 * threshold], n)
    assert law.participation[0] < 1e-4
    assert law.participation[1] > 0.4
