"""The first nodes of a sum over t stand for all before them."""

from __future__ import annotations

import numpy as np
import pytest

from attnlimit.theory.law.population.start import START, STEP, start_weights


@pytest.mark.parametrize("power", [1, 2])
def test_every_total_up_to_the_largest_is_inverted(power):
    total = np.geomspace(1e-5, 1, 777)[:, None]
    times = START * np.exp(STEP * np.arange(40))
    terms = (total * times) ** power * np.exp(-total * times)
    np.testing.assert_allclose(STEP * terms @ start_weights(40, power), 1, atol=1e-6)


def test_few_nodes_have_the_first_weights():
    np.testing.assert_array_equal(start_weights(2, 1), start_weights(9, 1)[:2])
