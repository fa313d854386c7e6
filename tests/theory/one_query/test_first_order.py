"""First order is the exact law where the denominator is sure, and thresholds are its sums."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attnlimit as al
from attnlimit.theory.one_query.first_order import (
    squared_distances,
    threshold_sums,
    value_variance,
    weight_law,
)
from attnlimit.theory.one_query.sampler import sampler_law

GENERATOR = torch.Generator().manual_seed(0)
SIZE = 400
SCORES = 1.5 * torch.randn(12, SIZE, generator=GENERATOR, dtype=torch.double)
SCORES[:4, 300:] = -torch.inf
VALUES = torch.randn(SIZE, 1, generator=GENERATOR, dtype=torch.double)
QUERIES = torch.arange(12) * 30
WEIGHTS = torch.softmax(SCORES, -1)
ALONG = VALUES[:, 0] - WEIGHTS @ VALUES

SAMPLERS = [
    al.Threshold(100),
    al.Keep(al.TopK(60), sample=150),
    al.Keep(al.TopK(60), sample=150, weighted=False),
    al.Keep(al.SinksAndRecent(2, 30), sample=230),
    al.Window(100, random=150),
    al.WithoutReplacement(260),
    al.Iid(3000),
    al.TopK(30),
    al.TopP(0.9),
]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_first_order_is_the_exact_law_when_samples_are_large(sampler):
    law = weight_law(sampler, SCORES, WEIGHTS, QUERIES)
    exact = sampler_law(sampler, SCORES, VALUES, QUERIES)
    bias = exact.bias[:, 0]
    variance = exact.mse - bias**2
    np.testing.assert_allclose(law.keys, exact.kept, rtol=1e-9)
    if sampler.draws == "nothing":
        np.testing.assert_allclose(law.bias(ALONG), bias, atol=1e-9)
        assert float(law.variance(ALONG).abs().max()) == 0
        return
    assert float(law.noise.max()) < 0.02
    result = law.variance(ALONG).numpy()
    assert result.sum() == pytest.approx(variance.sum(), rel=0.006)
    np.testing.assert_allclose(result, variance, rtol=0.03)
    size = np.sqrt(exact.mse)
    np.testing.assert_allclose(law.bias(ALONG).numpy() / size, bias / size, atol=0.01)


def test_noise_is_the_relative_variance_of_the_denominator():
    sampler = al.Keep(al.TopK(10), sample=100)
    law = weight_law(sampler, SCORES, WEIGHTS, QUERIES)
    drawn = []
    generator = torch.Generator().manual_seed(1)
    for _ in range(4000):
        added = sampler.draw(SCORES, QUERIES, generator)
        drawn.append(torch.exp(torch.logsumexp(SCORES + added, -1) - torch.logsumexp(SCORES, -1)))
    totals = torch.stack(drawn)
    torch.testing.assert_close(totals.mean(0), torch.ones(12).double(), atol=0.02, rtol=0)
    torch.testing.assert_close(totals.var(0), law.noise, rtol=0.15, atol=0)


def test_the_noise_of_a_threshold_is_at_most_its_inverse():
    for c in (3.0, 10.0, 47.0):
        assert float(weight_law(al.Threshold(c), SCORES, WEIGHTS, QUERIES).noise.max()) <= 1 / c


def test_all_thresholds_at_once_are_each_by_itself():
    along = torch.randn(2, 1, 12, SIZE, generator=GENERATOR, dtype=torch.double)
    along -= (WEIGHTS * along).sum(-1, keepdim=True)
    along = torch.cat([along, along.flip(-1)], dim=1)
    weights = torch.stack([WEIGHTS, WEIGHTS.flip(-1)])
    grid = torch.tensor([4.0, 9.5, 33.0, 120.0, 1e6]).double()
    sums = threshold_sums(weights, along, grid)
    best = torch.zeros_like(weights).scatter(-1, weights.argmax(-1, keepdim=True), 1.0)
    for i, c in enumerate(grid.tolist()):
        law = weight_law(al.Threshold(c), torch.log(weights), weights, QUERIES)
        torch.testing.assert_close(sums.keys[i], law.keys.sum(-1))
        noise = (weights / c - weights**2).clamp_min(0) * (1 - best)
        torch.testing.assert_close(sums.variance[i], (noise * along**2).sum((-1, -2)))
        torch.testing.assert_close(sums.bias[i], -(noise * along).sum((-1, -2)))
        # The terms left out are of the order of 1/c, and nearly cancel.
        torch.testing.assert_close(
            sums.variance[i], law.variance(along).sum(-1), rtol=1 / c, atol=0
        )


@pytest.mark.parametrize("systematic", [False, True])
def test_a_constant_has_no_variance_over_drawn_rows(systematic):
    plain = value_variance(WEIGHTS, ALONG, 20, systematic)
    moved = value_variance(WEIGHTS, ALONG + 3.0, 20, systematic)
    torch.testing.assert_close(moved, plain)
    assert float(plain.min()) > 1e-4


def test_a_way_of_drawing_without_a_law_is_refused():
    class Odd(al.Sampler):
        draws = "without replacement"

        def probabilities(self, scores, queries):
            return torch.ones_like(scores)

    with pytest.raises(al.BadInput, match="measure it with evaluate"):
        weight_law(Odd(), SCORES, WEIGHTS, QUERIES)


def test_squared_distances_of_several_heads():
    generator = torch.Generator().manual_seed(0)
    values, outputs = (torch.randn(2, size, 3, generator=generator) for size in (7, 4))
    expected = torch.cdist(outputs, values).square()
    torch.testing.assert_close(squared_distances(values, outputs), expected)
