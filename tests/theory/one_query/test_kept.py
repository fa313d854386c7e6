"""The law of keeping some keys and sampling the rest, against simulation and its limit cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attnlimit as al
from attnlimit.errors import BadInput
from attnlimit.theory.one_query.kept import kept_error, kept_law
from attnlimit.theory.one_query.population import population_law


def population(size=30, dim=4, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(size, dim))
    head = al.Head(scale * rng.normal(size=(dim, dim)), rng.normal(size=(3, dim)))
    return head, al.Empirical(points), rng.normal(size=(5, dim))


def simulate(scores, values, probabilities, weighted, draws, seed=1):
    """Errors (draws, m, d_v) of attention over independently kept keys."""
    rng = np.random.default_rng(seed)
    chosen = rng.random((draws, *probabilities.shape)) < probabilities
    cost = np.exp(scores - scores.max(1, keepdims=True))
    if weighted:
        cost = cost / np.where(probabilities > 0, probabilities, 1)
    weights = chosen * cost
    weights /= weights.sum(-1, keepdims=True)
    full = np.exp(scores - scores.max(1, keepdims=True))
    full /= full.sum(1, keepdims=True)
    return weights @ values - full @ values, weights


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_the_law_is_what_simulation_gives(weighted, scale):
    head, tokens, x = population(scale=scale)
    scores = head.tilts(x) @ tokens.locations.T
    rng = np.random.default_rng(5)
    probabilities = rng.uniform(0.1, 0.9, size=scores.shape)
    probabilities[:, :3] = 1
    probabilities[:, 3:5] = 0
    law = kept_error(head, tokens, x, probabilities, weighted=weighted)
    errors, weights = simulate(
        scores, tokens.locations @ head.V.T, probabilities, weighted, draws=60_000
    )
    squares = (errors**2).sum(-1)
    assert (np.abs(squares.mean(0) - law.mse) < 4.5 * squares.std(0) / np.sqrt(60_000)).all()
    deviation = errors.std(0) / np.sqrt(60_000)
    assert (np.abs(errors.mean(0) - law.bias) < 5 * deviation + 1e-9).all()
    participation = (weights**2).sum(-1)
    close = 4.5 * participation.std(0) / np.sqrt(60_000)
    assert (np.abs(participation.mean(0) - law.participation) < close).all()
    np.testing.assert_allclose(law.kept, probabilities.sum(1))


def test_keeping_everything_is_attention_itself():
    head, tokens, x = population(scale=2.0)
    law = kept_error(head, tokens, x, np.ones(30))
    np.testing.assert_allclose(law.mse, 0, atol=1e-12)
    np.testing.assert_allclose(law.output, head(x, tokens.locations), rtol=1e-10)
    full = al.Empirical(tokens.locations).tilted_mean(head.tilts(x))
    np.testing.assert_allclose(law.output, full @ head.V.T, rtol=1e-10)


@pytest.mark.parametrize("n", [20, 200])
def test_many_copies_kept_rarely_are_independent_draws(n):
    """Many copies, each kept rarely: a Poisson number of independent draws, n on average."""
    head, tokens, x = population(size=12, scale=0.7)
    copies = 4000
    points = np.repeat(tokens.locations, copies, axis=0)
    scores = head.tilts(x) @ points.T
    scores = np.concatenate([scores, np.full((5, 1), -60.0)], axis=1)  # kept, and of no weight
    values = np.concatenate([points @ head.V.T, np.zeros((1, 3))])
    probabilities = np.full(len(values), n / (12 * copies))
    probabilities[-1] = 1
    law = kept_law(scores, values, probabilities, weighted=False)
    counts = np.arange(max(2, n - 6 * int(n**0.5)), n + 6 * int(n**0.5))
    exact = population_law(scores[:, ::copies][:, :12], values[::copies][:12], counts).mse
    from scipy.stats import poisson

    np.testing.assert_allclose(law.mse, exact @ poisson.pmf(counts, n), rtol=1e-2)


def test_weighting_removes_the_bias_that_keeping_top_keys_leaves():
    head, tokens, x = population(size=60, scale=0.3)
    scores = head.tilts(x) @ tokens.locations.T
    sampler = al.Keep(al.TopK(8), sample=24)
    probabilities = sampler.inclusion_probabilities(
        torch.from_numpy(scores), torch.arange(len(scores))
    )
    np.testing.assert_allclose(probabilities.sum(1), 32)
    biased = kept_error(head, tokens, x, probabilities, weighted=False)
    fair = kept_error(head, tokens, x, probabilities)
    assert np.linalg.norm(fair.bias, axis=1).sum() < 0.2 * np.linalg.norm(biased.bias, axis=1).sum()


@settings(max_examples=15, deadline=None)
@given(shift=st.floats(-300, 300), seed=st.integers(0, 10**6))
def test_scores_can_be_shifted_and_keys_permuted(shift, seed):
    rng = np.random.default_rng(seed)
    scores, values = 2 * rng.normal(size=(3, 17)), rng.normal(size=(17, 2))
    probabilities = np.append(1.0, rng.random(16))
    order = rng.permutation(17)
    law = kept_law(scores, values, probabilities)
    moved = kept_law(scores[:, order] + shift, values[order], probabilities[order])
    np.testing.assert_allclose(moved.mse, law.mse, rtol=1e-6, atol=1e-12)


def test_what_cannot_be_used_is_refused():
    head, tokens, x = population()
    with pytest.raises(BadInput, match="kept for sure"):
        kept_error(head, tokens, x, np.full(30, 0.5))
    with pytest.raises(BadInput, match="between 0 and 1"):
        kept_error(head, tokens, x, np.full(30, 1.5))
    with pytest.raises(BadInput, match="must have shape"):
        kept_error(head, tokens, x, np.ones(7))
    with pytest.raises(BadInput, match="finitely many tokens"):
        kept_error(head, al.Gaussian(dim=4), x, np.ones(30))
    with pytest.raises(BadInput, match="kept for sure"):
        kept_law(np.array([[-np.inf, 0.0]]), np.ones((2, 1)), np.array([1.0, 0.5]))
