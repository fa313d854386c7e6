"""Sampling without replacement, against every subset there is and against simulation."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from attnlimit.errors import BadInput
from attnlimit.theory.one_query.kept import subset_law


def every_subset(scores, values, size):
    """Mean squared error, bias and participation over all subsets, one query."""
    full = np.exp(scores - scores.max())
    output = full @ values / full.sum()
    errors, participation = [], []
    for chosen in combinations(range(len(scores)), size):
        index = list(chosen)
        weights = full[index] / full[index].sum()
        errors.append(weights @ values[index] - output)
        participation.append((weights**2).sum())
    errors = np.array(errors)
    return (errors**2).sum(1).mean(), errors.mean(0), np.mean(participation)


@pytest.mark.parametrize("size", [1, 2, 5, 10])
@pytest.mark.parametrize("scale", [0.2, 2.0, 6.0])
def test_it_is_the_average_over_all_subsets(size, scale):
    rng = np.random.default_rng(size)
    scores, values = scale * rng.normal(size=(2, 12)), rng.normal(size=(12, 3))
    law = subset_law(scores, values, size)
    for row in range(2):
        mse, bias, participation = every_subset(scores[row], values, size)
        np.testing.assert_allclose(law.mse[row], mse, rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(law.bias[row], bias, atol=1e-5)
        np.testing.assert_allclose(law.participation[row], participation, rtol=1e-4)


def test_simulated_subsets_of_many_keys_agree():
    rng = np.random.default_rng(0)
    scores, values = 1.5 * rng.normal(size=(1, 300)), rng.normal(size=(300, 4))
    law = subset_law(scores, values, 60)
    output = np.exp(scores[0]) @ values / np.exp(scores[0]).sum()
    errors = []
    for _ in range(8000):
        index = rng.permutation(300)[:60]
        weights = np.exp(scores[0, index])
        errors.append(((weights @ values[index] / weights.sum() - output) ** 2).sum())
    assert abs(np.mean(errors) - law.mse[0]) < 4 * np.std(errors) / np.sqrt(8000)


def test_all_keys_leave_nothing_random():
    rng = np.random.default_rng(0)
    scores, values = rng.normal(size=(2, 9)), rng.normal(size=(9, 2))
    np.testing.assert_allclose(subset_law(scores, values, 9).mse, 0, atol=1e-15)
    np.testing.assert_allclose(subset_law(scores, values, 50).mse, 0, atol=1e-15)


def test_what_cannot_be_used_is_refused():
    with pytest.raises(BadInput, match="size"):
        subset_law(np.ones((1, 3)), np.ones((3, 1)), 0)
    with pytest.raises(BadInput, match="queries, keys"):
        subset_law(np.ones((1, 3)), np.ones((4, 1)), 2)
