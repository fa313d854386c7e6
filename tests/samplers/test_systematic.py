"""Probabilities add up to the size; systematic samples keep them, and unbiased sums."""

from __future__ import annotations

import pytest
import torch

from attnlimit.samplers.systematic import proportional, systematic_sample


def some_weights():
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(5, 40, generator=generator) ** 4
    sure = torch.zeros(5, 40, dtype=torch.bool)
    sure[:, :3] = True
    return weights, sure


@pytest.mark.parametrize("size", [3, 4, 10, 39, 40, 50])
def test_chances_add_up_to_the_number_kept(size):
    weights, sure = some_weights()
    chance = proportional(weights, torch.full((5,), size), sure)
    torch.testing.assert_close(chance.sum(-1), torch.full((5,), min(40.0, size)).double())
    assert (chance[sure] == 1).all()
    assert (chance <= 1).all()
    free = (chance < 1) & (chance > 0)
    ratio = chance / weights.double()
    for row in range(5):
        if free[row].any():
            factor = ratio[row][free[row]]
            torch.testing.assert_close(factor, factor[:1].expand_as(factor))
            # Certain keys are those for which c w would reach one.
            certain = ~free[row] & ~sure[row]
            assert (weights[row][certain].double() * factor[0] >= 1 - 1e-9).all()


def test_systematic_draws_keep_a_fixed_number_with_exact_chances():
    weights, sure = some_weights()
    chance = proportional(weights, torch.full((5,), 10), sure)
    starts = (torch.arange(4000) + 0.5) / 4000
    drawn = torch.stack([systematic_sample(chance, start.expand(5)) for start in starts])
    assert (drawn.sum(-1) == 10).all()
    torch.testing.assert_close(drawn.double().mean(0), chance, atol=5e-4, rtol=0)


def test_kept_keys_stand_for_all_in_the_sums_of_the_softmax():
    """Numerator and denominator of attention are unbiased, over all starts of the draw."""
    weights, sure = some_weights()
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(5, 40, generator=generator).double()
    values = torch.randn(5, 40, 3, generator=generator).double()
    chance = proportional(weights + 0.1, torch.full((5,), 12), sure)
    starts = (torch.arange(4000) + 0.5) / 4000
    drawn = torch.stack([systematic_sample(chance, start.expand(5)) for start in starts])
    mass = torch.exp(scores - torch.log(chance)) * drawn
    torch.testing.assert_close(mass.sum(-1).mean(0), scores.exp().sum(-1), rtol=2e-3, atol=0)
    sums = (mass[..., None] * values).sum(-2).mean(0)
    expected = (scores.exp()[..., None] * values).sum(-2)
    torch.testing.assert_close(sums, expected, rtol=0, atol=5e-3 * float(expected.abs().max()))
