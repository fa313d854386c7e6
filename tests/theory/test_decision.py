from itertools import combinations, product

import numpy as np
import pytest
import torch
from scipy.special import softmax

import attnlimit as al
from attnlimit.theory import decision
from attnlimit.theory.decision import (
    chance_below,
    decision_changes,
)

RNG = np.random.default_rng(0)
SCORES = RNG.standard_normal(9) * 3  # some weights are orders of magnitude larger than others
ODDS = RNG.standard_normal(9) * 2


def odds_over(index, extra=0.0):
    index = list(index)
    return float(softmax(SCORES[index] + extra) @ ODDS[index])


def listed(sampler):
    """Log-odds over every outcome of a sampler, and its chance."""
    if sampler.draws == "with replacement":
        every = list(product(range(9), repeat=sampler.size))
        return [odds_over(entry) for entry in every], np.full(len(every), 1 / len(every))
    every = list(combinations(range(9), sampler.size))
    return [odds_over(entry) for entry in every], np.full(len(every), 1 / len(every))


@pytest.mark.parametrize(
    "sampler",
    [al.Iid(1), al.Iid(2), al.Iid(3), *map(al.WithoutReplacement, (1, 3, 5, 8, 9))],
    ids=lambda sampler: sampler.name,
)
def test_the_law_is_that_of_all_outcomes(sampler):
    odds, chance = listed(sampler)
    for threshold in (-1.0, -0.21, 0.0, 0.4, 1.3):
        exact = chance @ (np.array(odds) < threshold)
        assert chance_below(sampler, SCORES, ODDS, threshold) == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize("weighted", [True, False])
def test_independent_keeping_is_its_outcomes(weighted):
    sampler = al.Keep(al.TopK(1), 4, weighted=weighted)
    best, p = int(np.argmax(SCORES)), 0.5
    odds, chance = [], []
    for kept in product([False, True], repeat=8):
        others = [j for j in range(9) if j != best]
        index = [best, *np.array(others)[list(kept)]]
        extra = np.array([0.0] + [-np.log(p)] * sum(kept)) if weighted else 0.0
        odds.append(odds_over(index, extra))
        chance.append(p ** sum(kept) * (1 - p) ** (8 - sum(kept)))
    exact = np.array(chance) @ (np.array(odds) < 0.1)
    assert chance_below(sampler, SCORES, ODDS, 0.1) == pytest.approx(exact, abs=1e-12)


def test_many_terms_kept_independently_are_summed_as_few_are_listed(monkeypatch):
    """The series that long bags need, on a bag that is short enough for the list."""
    scores, odds = 2 * RNG.standard_normal(28), RNG.standard_normal(28)
    whole = float(softmax(scores) @ odds)
    for c in (4.0, 12.0):
        listed_chance = chance_below(al.Threshold(c), scores, odds, whole)
        with monkeypatch.context() as patch:
            patch.setattr(decision, "MOST", 0)
            summed = chance_below(al.Threshold(c), scores, odds, whole)
        assert 0.05 < listed_chance < 0.95
        assert summed == pytest.approx(listed_chance, abs=0.01)


def test_what_is_kept_for_sure_does_not_blur_the_rest(monkeypatch):
    """Two large terms that nearly cancel: the small ones, kept by chance, decide."""
    scores = np.array([6.0, 6.0, *np.linspace(-1, 1, 7)])
    odds = np.array([1.0, -1.0 - 0.3 * np.exp(-6), 1.2, -0.7, 0.4, -1.5, 0.9, 0.3, -0.2])
    sampler = al.Keep(al.TopK(2), 3, weighted=False)
    p = sampler.inclusion_probabilities(
        torch.from_numpy(scores)[None], torch.zeros(1, dtype=torch.long)
    )[0].numpy()
    assert (p == 1).sum() == 2
    weights, exact = np.exp(scores), 0.0
    for kept in product([False, True], repeat=7):
        which = np.array([True, True, *kept])
        chance = np.prod(np.where(which, p, 1 - p))
        exact += chance * float(weights[which] @ odds[which] < 0)
    assert 0.1 < exact < 0.9
    assert chance_below(sampler, scores, odds, 0.0) == pytest.approx(exact, abs=1e-12)
    monkeypatch.setattr(decision, "MOST", 0)
    assert chance_below(sampler, scores, odds, 0.0) == pytest.approx(exact, abs=0.01)


def test_what_draws_nothing_decides_for_sure():
    kept = np.argsort(SCORES)[-3:]
    changed = np.sign(odds_over(kept)) != np.sign(odds_over(range(9)))
    assert decision_changes(al.TopK(3), SCORES, ODDS, odds_over(range(9))) == float(changed)
    assert decision_changes(al.TopK(9), SCORES, ODDS, odds_over(range(9))) == 0.0
    assert decision_changes(al.Iid(4), SCORES[:1], ODDS[:1], float(ODDS[0])) == 0.0


def test_scores_may_differ_by_a_hundred():
    scores, odds = 60 * RNG.standard_normal(30), RNG.standard_normal(30)
    share = 1 / (1 + np.exp(np.clip(scores[None] - scores[:, None], -700, 700)))
    exact = np.mean(share * odds[:, None] + (1 - share) * odds[None] < 0)
    assert chance_below(al.Iid(2), scores, odds, 0.0) == pytest.approx(exact, abs=0.005)


def test_two_instances_of_which_one_may_be_kept():
    scores, odds = np.array([0.0, -1.0]), np.array([1.0, -9.0])
    weight = softmax(scores)[1]
    below = chance_below(al.Threshold(1.5), scores, odds, 0.0)
    assert below == pytest.approx(1.5 * weight, abs=1e-12)
