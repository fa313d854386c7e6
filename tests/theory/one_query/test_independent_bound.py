"""The bound of independent sampling is reached by its own probabilities alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnlimit.theory.one_query.first_order import IndependentBound

GENERATOR = torch.Generator().manual_seed(4)
WEIGHTS = torch.softmax(2 * torch.randn(3, 20, 30, generator=GENERATOR), -1)
ALONG = torch.randn(2, 3, 20, 30, generator=GENERATOR)
SIZE = (WEIGHTS * ALONG.square().mean(0).sqrt()).double()


@pytest.mark.parametrize("c", [5.0, 40.0, 300.0])
def test_it_is_the_variance_at_the_best_chances(c):
    best = IndependentBound()
    best.add(WEIGHTS[:, :9], ALONG[:, :, :9])
    best.add(WEIGHTS[:, 9:], ALONG[:, :, 9:])
    chance = (c * SIZE).clamp_max(1.0)
    variance = float(((1 / chance - 1) * SIZE.square()).sum())
    assert best.variance(float(chance.sum())) == pytest.approx(variance, rel=0.01)


def test_other_chances_for_as_many_keys_have_more():
    best = IndependentBound()
    best.add(WEIGHTS, ALONG)
    rng = np.random.default_rng(0)
    for _ in range(20):
        chance = (30 * SIZE * torch.from_numpy(rng.uniform(0.3, 3, SIZE.shape))).clamp_max(1.0)
        variance = float(((1 / chance - 1) * SIZE.square()).sum())
        assert best.variance(float(chance.sum())) < variance


def test_all_keys_have_none():
    best = IndependentBound()
    best.add(WEIGHTS, ALONG)
    assert best.variance(WEIGHTS.numel()) == 0
