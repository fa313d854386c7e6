"""The first nodes of a sum over t stand for all before them."""

from __future__ import annotations

import numpy as np
import pytest

from attnlimit.theory.one_query.quadrature import (
    PAIRS,
    START,
    STEP,
    Sweep,
    alpha_grid,
    alpha_weights,
    late_grid,
    meeting,
    start_weights,
)


@pytest.mark.parametrize("power", [1, 2])
def test_every_total_up_to_the_largest_is_inverted(power):
    total = np.geomspace(1e-5, 1, 777)[:, None]
    times = START * np.exp(STEP * np.arange(40))
    terms = (total * times) ** power * np.exp(-total * times)
    np.testing.assert_allclose(STEP * terms @ start_weights(40, power), 1, atol=1e-6)


def test_few_nodes_have_the_first_weights():
    np.testing.assert_array_equal(start_weights(2, 1), start_weights(9, 1)[:2])


@pytest.mark.parametrize("spread", [0.1, 2.0, 12.0])
def test_a_late_grid_has_far_fewer_nodes_and_the_same_sums(spread):
    """The weights of n keys sum to one, and those of two of them to one less the participation."""
    score, weight = spread * np.random.default_rng(0).normal(size=50), np.full(50, 0.02)
    counts = np.array([20, 3000])
    late = late_grid(score, weight, counts, PAIRS)
    assert len(late) < len(alpha_grid(score, weight, counts, PAIRS)) - 20
    sweep, actual = Sweep.over(score, weight, late), np.ones(50)
    for n in counts.tolist():
        once, twice = (meeting(sweep.log_phi, n, k, 1.0) for k in (1, 2))
        total = (once * sweep.moment(1, actual)) @ alpha_weights(late, 1)
        squares = once * sweep.moment(2, actual) + twice * sweep.moment(1, actual) ** 2
        np.testing.assert_allclose(total, 1, atol=2e-6)
        np.testing.assert_allclose(squares @ alpha_weights(late, 2), 1, atol=2e-6)
