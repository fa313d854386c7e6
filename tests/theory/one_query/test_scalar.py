"""The law of numbers averaged over kept keys, against simulation and the law of vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnlimit.errors import BadInput
from attnlimit.theory.one_query.first_order import key_variances
from attnlimit.theory.one_query.kept import kept_law, scalar_law


def problem(queries=4, keys=25, scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(queries, keys, generator=generator, dtype=torch.double)
    scores[1, 20:] = -torch.inf
    chance = torch.rand(queries, keys, generator=generator, dtype=torch.double)
    chance[:, :2] = 1
    chance[:, 5] = 0
    return scores, chance, torch.randn(queries, keys, generator=generator, dtype=torch.double)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_the_law_is_what_simulation_gives(weighted, scale):
    scores, chance, numbers = problem(scale=scale)
    law = scalar_law(scores, numbers, chance, weighted=weighted)
    draws = 40_000
    uniform = torch.rand(draws, *scores.shape, generator=torch.Generator().manual_seed(1))
    logits = scores - torch.log(chance) if weighted else scores
    weights = torch.softmax(torch.where(uniform < chance, logits, -torch.inf), -1)
    errors = (weights * numbers).sum(-1) - (torch.softmax(scores, -1) * numbers).sum(-1)
    for entry, drawn in ((law.bias, errors), (law.mse, errors.square())):
        assert ((drawn.mean(0) - entry).abs() < 4.5 * drawn.std(0) / draws**0.5 + 1e-9).all()


@pytest.mark.parametrize("weighted", [True, False])
def test_coordinates_of_vectors_add_up_to_the_law_of_vectors(weighted):
    """E|Gamma~ - Gamma|^2 is the sum of the errors of its coordinates, several sets at once."""
    scores, chance, _ = problem(scale=2.0)
    values = np.random.default_rng(0).normal(size=(25, 3))
    vector = kept_law(scores, values, chance, weighted=weighted)
    sets = torch.from_numpy(values.T.copy())[:, None, :].expand(3, *scores.shape)
    law = scalar_law(scores, sets, chance, weighted=weighted)
    assert law.mse.shape == (3, 4)
    np.testing.assert_allclose(law.mse.sum(0), vector.mse, rtol=1e-9)
    np.testing.assert_allclose(law.bias.T, vector.bias, rtol=1e-7, atol=1e-12)


def test_the_first_order_is_reached_when_many_keys_matter_little():
    gaps = []
    for keys in (100, 1000):
        scores, chance, numbers = problem(keys=keys, scale=0.3)
        chance = 0.5 + chance / 2
        law = scalar_law(scores, numbers, chance)
        weights = torch.softmax(scores, -1)
        shift = numbers - (weights * numbers).sum(-1, keepdim=True)
        odds = torch.where(chance > 0, 1 / chance - 1, 0.0)
        first = key_variances(weights, odds, shift.square()).sum(-1)
        gaps.append(float((first / law.mse - 1).abs()[0]))
    assert gaps[0] < 0.1
    assert gaps[1] < gaps[0] / 4


def test_queries_do_not_touch_each_other():
    scores, chance, numbers = problem(queries=6)
    together = scalar_law(scores, numbers, chance)
    apart = [scalar_law(scores[[k]], numbers[[k]], chance[k]) for k in range(6)]
    np.testing.assert_allclose(together.mse, torch.cat([entry.mse for entry in apart]), rtol=1e-7)


def test_what_cannot_be_used_is_refused():
    scores, chance, numbers = problem()
    with pytest.raises(BadInput, match="queries, keys"):
        scalar_law(scores, numbers[:, :3], chance)
    with pytest.raises(BadInput, match="kept for sure"):
        scalar_law(scores, numbers, chance / 2)
    with pytest.raises(BadInput, match="NaN"):
        scalar_law(scores, numbers * torch.nan, chance)
