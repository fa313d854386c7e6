"""The sum over alpha: known integrals, and keys that meet."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnlimit.errors import NotConverged
from attnlimit.theory.one_query.quadrature import (
    EXACT,
    PAIRS,
    Sweep,
    alpha_grid,
    check_weights,
    meeting,
)


@pytest.mark.parametrize(("precision", "close"), [(EXACT, 1e-13), (PAIRS, 1e-6)])
@pytest.mark.parametrize("n", [2, 7, 1000])
def test_keys_that_are_all_alike_share_evenly(precision, close, n):
    """With one score, k distinct keys meet with weight n ... (n-k+1) (k-1)! / n^k."""
    score, weight = np.array([0.7]), np.ones(1)
    sweep = Sweep.over(score, weight, alpha_grid(score, weight, np.array([n]), precision))
    once = sweep.meeting(n, 1) @ sweep.moment(1, np.ones(1))
    twice = sweep.meeting(n, 2) @ sweep.moment(1, np.ones(1)) ** 2
    np.testing.assert_allclose(once, 1, atol=close)
    np.testing.assert_allclose(twice, 1 - 1 / n, atol=close)


def test_arrays_and_tensors_have_one_rule():
    logs = -np.linspace(0.1, 3, 5)
    np.testing.assert_array_equal(
        meeting(logs, 9, 2, 0.5), meeting(torch.from_numpy(logs), 9, 2, 0.5).numpy()
    )
    np.testing.assert_allclose(meeting(logs, 9, 2, 0.5), 0.5 * 72 * np.exp(7 * logs))


def test_weights_that_miss_one_are_refused_with_what_was_reached():
    assert check_weights(np.array([1.0, 1 + 1e-9]), 1e-8) < 2e-9
    with pytest.raises(NotConverged, match="sum to one only within") as caught:
        check_weights(np.array([1.0, 0.9]), 1e-4)
    assert caught.value.reached == pytest.approx(0.1)
    with pytest.raises(NotConverged):
        check_weights(torch.tensor([torch.nan]), 1e-4)
