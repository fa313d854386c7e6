"""The batched law of a finite population is the law of each of its queries."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attnlimit as al
from attnlimit.errors import BadInput
from attnlimit.theory.one_query.population import population_law

COUNTS = [2, 3, 16, 100, 3000]


def problem(scale=1.0, size=40):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(size, 5))
    head = al.Head(scale * rng.normal(size=(5, 5)), rng.normal(size=(3, 5)))
    return head, points, rng.normal(size=(7, 5))


@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("single", [False, True])
def test_it_is_the_exact_law_of_each_query(scale, single):
    head, points, x = problem(scale)
    one_by_one = al.pointwise_error(head, al.Empirical(points), x, COUNTS)
    scores, values = head.tilts(x) @ points.T, points @ head.V.T
    if single:
        scores, values = torch.tensor(scores).float(), torch.tensor(values).float()
    law = population_law(scores, values, COUNTS, bias=True)
    np.testing.assert_allclose(law.mse, one_by_one.mse, rtol=1e-3 if single else 1e-5)
    np.testing.assert_allclose(law.participation, one_by_one.participation, rtol=1e-3)
    size = np.sqrt(one_by_one.mse)[..., None]
    np.testing.assert_allclose(law.bias / size, one_by_one.bias / size, atol=2e-3)
    np.testing.assert_allclose(law.output, head(x, points), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("causal", [False, True])
def test_single_precision_keeps_six_digits(scale, causal):
    head, points, _ = problem(scale, size=300)
    scores, values = head.tilts(points) @ points.T, points @ head.V.T
    if causal:
        scores[np.triu_indices(300, 1)] = -np.inf
    scores, values = torch.tensor(scores).float()[9::10], torch.tensor(values).float()
    counts = [16, 64, 384]
    single = population_law(scores, values, counts)
    double = population_law(scores.double(), values.double(), counts)
    np.testing.assert_allclose(single.mse, double.mse, rtol=5e-6)
    np.testing.assert_allclose(single.participation, double.participation, rtol=5e-6)


def test_one_n_or_many_in_any_order_give_the_same():
    head, points, x = problem()
    scores, values = head.tilts(x) @ points.T, points @ head.V.T
    law = population_law(scores, values, [100, 2, 100])
    alone = population_law(scores, values, [100])
    np.testing.assert_allclose(law.mse[:, [0]], alone.mse, rtol=1e-6)
    np.testing.assert_array_equal(law.mse[:, 0], law.mse[:, 2])


def test_a_key_that_is_not_visible_might_as_well_not_be_there():
    head, points, x = problem()
    scores, values = head.tilts(x) @ points.T, points @ head.V.T
    scores[:, 30:] = -np.inf
    hidden = population_law(scores, values, COUNTS)
    gone = population_law(scores[:, :30], values[:30], COUNTS)
    np.testing.assert_allclose(hidden.mse, gone.mse, rtol=1e-6)


def test_simulated_draws_agree():
    head, points, x = problem(scale=1.5)
    scores, values = head.tilts(x) @ points.T, points @ head.V.T
    rng = np.random.default_rng(2)
    picks = rng.integers(0, 40, size=(20_000, 12))
    drawn = scores[:, picks]
    weights = np.exp(drawn - drawn.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    outputs = np.einsum("mrn,rnv->mrv", weights, values[picks])
    errors = ((outputs - head(x, points)[:, None]) ** 2).sum(-1)
    law = population_law(scores, values, [12])
    spread = errors.std(1) / np.sqrt(20_000)
    assert (np.abs(errors.mean(1) - law.mse[:, 0]) < 4.5 * spread).all()


def test_what_cannot_be_used_is_refused():
    with pytest.raises(BadInput, match="queries, keys"):
        population_law(np.ones((2, 3)), np.ones((4, 1)), [2])
    with pytest.raises(BadInput, match="NaN"):
        population_law(np.full((2, 3), np.nan), np.ones((3, 1)), [2])
    with pytest.raises(BadInput, match="no key"):
        population_law(np.full((2, 3), -np.inf), np.ones((3, 1)), [2])
    with pytest.raises(BadInput, match="at least 2"):
        population_law(np.ones((2, 3)), np.ones((3, 1)), [1])


def test_few_draws_from_many_keys_where_one_rules():
    """Two draws of 600 keys, one of which has nearly all the weight."""
    rng = np.random.default_rng(4)
    scores, values = rng.normal(size=(3, 600)), rng.normal(size=(600, 2))
    scores[:, 7] += 12
    law = population_law(scores, values, [2])
    chance = 1 - (1 - 1 / 600) ** 2  # that the ruling key is drawn
    others = np.delete(values, 7, axis=0)
    missed = ((others[:, None] - values[7]) ** 2).sum(-1).mean()
    assert law.check < 1e-5
    assert (law.mse > 0.3 * (1 - chance) * missed).all()
    assert (law.mse < (1 - chance) * missed).all()
