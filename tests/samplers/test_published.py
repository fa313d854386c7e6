"""Published reading rules keep the keys that their papers' equations name."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch

import attnlimit as al
from attnlimit.errors import BadInput
from attnlimit.samplers import (
    MagicPIG,
    Products,
    Quest,
    Santa,
    Twilight,
    VAttention,
    parse_sampler,
    sampler_spec,
)
from attnlimit.theory.one_query.first_order import weight_law
from attnlimit.theory.one_query.sampler import sampler_law

KEYS, PLACES = 64, torch.tensor([40, 57, 63])
RULES = [
    Quest(8, 4),
    Twilight(0.7, 0.5, 4),
    VAttention(0.3, 0.2, 0.1, 0.0, 2, 3),
    VAttention(0.3, 0.2, 0.1, 0.1, 2, 3),
    MagicPIG(3, 8, 1, 2),
    Santa(7),
    Santa(7, True),
]


def products(seed=0, heads=2, width=8):
    generator = torch.Generator().manual_seed(seed)
    query, key = (
        torch.randn(heads, n, width, generator=generator, dtype=torch.double)
        for n in (len(PLACES), KEYS)
    )
    hidden = torch.arange(KEYS)[None] > PLACES[:, None]
    return Products(query, key, lambda scores: scores.masked_fill(hidden, -torch.inf))


def kept(rule, given):
    return rule.bind(given).inclusion_probabilities(given.exact(), PLACES)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_rules_survive_their_text(rule):
    assert parse_sampler(sampler_spec(rule)) == rule


@pytest.mark.parametrize("rule", [r for r in RULES if not isinstance(r, VAttention)], ids=repr)
def test_inclusion_is_how_often_a_key_is_drawn(rule):
    given, draws = products(), 2000
    generator, bound = torch.Generator().manual_seed(1), rule.bind(given)
    counts = sum(
        (bound.draw(given.exact(), PLACES, generator) > -torch.inf).double() for _ in range(draws)
    )
    inclusion = kept(rule, given)
    noise = (inclusion * (1 - inclusion) / draws).sqrt()
    gap = (counts / draws - inclusion).abs()
    assert (gap <= 5 * noise + 5 / draws).all()  # rare keys are not normal


def test_quest_takes_the_pages_of_the_largest_bound():
    """Quest, sec. 3.2: the score of a page is the sum over i of max(q_i m_i, q_i M_i)."""
    given = products()
    inclusion = kept(Quest(8, 4), given)
    for head in range(2):
        for row, place in enumerate(PLACES.tolist()):
            bounds = []
            for start in range(0, KEYS, 4):
                page = given.key[head, start : start + 4].numpy()
                q = given.query[head, row].numpy()
                bounds.append(np.maximum(q * page.min(0), q * page.max(0)).sum())
            own = place // 4
            others = sorted(range(own), key=lambda page: -bounds[page])[:1]
            wanted = {key for page in (own, *others) for key in range(4 * page, 4 * page + 4)}
            assert set(inclusion[head, row].nonzero().ravel().tolist()) == {
                key for key in wanted if key <= place
            }


def test_quest_takes_the_pages_that_public_code_takes():
    """Best three of eight pages by sparse-attention-hub's quest_page_scores on these tensors.

    The page of the query itself, the last one, comes on top here.
    """
    rng = np.random.default_rng(7)
    query, key = (torch.tensor(rng.standard_normal((2, count, 8))) for count in (3, 62))
    given = Products(query, key, lambda scores: scores)
    places = torch.full((3,), 61)
    chosen = Quest(32, 8).bind(given).inclusion_probabilities(given.exact(), places)
    pages = [
        [sorted({k // 8 for k in row.nonzero().ravel().tolist()}) for row in h] for h in chosen
    ]
    assert pages == [
        [[0, 3, 5, 7], [2, 3, 5, 7], [1, 3, 6, 7]],
        [[2, 4, 6, 7], [0, 2, 3, 7], [2, 4, 6, 7]],
    ]


def test_twilight_takes_the_fewest_keys_of_a_share():
    """Twilight, eq. 4: the smallest set I with the sum of W over I at least p."""
    given = products()
    inclusion = kept(Twilight(0.7, 1.0), given)
    codes = given.scores(al.Bits(4).products(given.query, given.key))
    weights = torch.softmax(codes, -1)
    for row in range(len(PLACES)):
        chosen = inclusion[0, row].bool()
        mass = weights[0, row]
        assert mass[chosen].sum() >= 0.7 > mass[chosen].sum() - mass[chosen].min()
        assert mass[chosen].min() >= mass[~chosen].max()
    candidates = Twilight(0.7, 0.25, 4).bind(given)
    looked = candidates.candidates(given.exact(), PLACES)
    assert (kept(Twilight(0.7, 0.25, 4), given) <= looked).all()
    seen = (PLACES + 1).double()
    assert (looked[0].sum(-1) <= (seen / 4 / 4).ceil() * 4).all()


def test_vattention_draws_as_many_as_its_bound_says():
    """vAttention, Lemma 4.1 for the denominator: b = (Phi^-1(1 - d/2) n s / (e D))^2."""
    given = products()
    scores = given.exact() / 4
    rule = VAttention(0.3, 0.2, 0.01, 0.0, 2, 3)
    inclusion = rule.inclusion_probabilities(scores, PLACES)
    for row, place in enumerate(PLACES.tolist()):
        weights = torch.exp(scores[0, row, : place + 1])
        rest = weights[2 : place - 2]
        spread = rest.std()
        b = (NormalDist().inv_cdf(0.9) * len(rest) * spread / (0.3 * weights.sum())) ** 2
        expected = float(b / len(rest))
        assert 0.01 < expected < 1
        torch.testing.assert_close(inclusion[0, row, 2 : place - 2].mean().item(), expected)
        assert (inclusion[0, row, :2] == 1).all()
        assert (inclusion[0, row, place - 2 : place + 1] == 1).all()


def test_vattention_keeps_the_denominator_within_epsilon():
    given = products()
    rule = VAttention(0.2, 0.2, 0.5, 0.1, 2, 3)
    scores, generator = given.exact(), torch.Generator().manual_seed(3)
    whole = torch.exp(scores).sum(-1)
    bound = rule.bind(given)
    assert ((bound.draw(scores, PLACES, generator) > -torch.inf) <= (kept(rule, given) > 0)).all()
    off = sum(
        (
            (torch.exp(scores + bound.draw(scores, PLACES, generator)).sum(-1) / whole - 1).abs()
            > 0.2
        ).double()
        for _ in range(400)
    )
    assert (off / 400).mean() < 0.2


def test_magicpig_keeps_keys_that_collide_twice():
    """MagicPIG, eq. 8: u = 1 - (1 - p^K)^L - L p^K (1 - p^K)^(L-1), p = 1 - theta/pi."""
    given = products()
    inclusion = kept(MagicPIG(3, 8, 1, 2), given)
    centred = given.key - given.key.mean(1, keepdim=True)
    cosine = torch.cosine_similarity(given.query[:, :, None], centred[:, None], dim=-1)
    same = (1 - torch.arccos(cosine) / math.pi) ** 3
    u = 1 - (1 - same) ** 8 - 8 * same * (1 - same) ** 7
    place = torch.arange(KEYS)
    middle = (place >= 1) & (place <= PLACES[:, None] - 2)
    torch.testing.assert_close(inclusion[:, middle], u[:, middle])
    assert (inclusion[:, (place < 1).expand(3, -1)] == 1).all()


@pytest.mark.parametrize("systematic", [False, True])
def test_santa_draws_value_rows_without_bias(systematic):
    """SANTA: the output is (1/S) sum_s v(i_s), i_s from the weights after the softmax."""
    given, rule = products(), Santa(7, systematic)
    scores, generator = given.exact(), torch.Generator().manual_seed(2)
    weights, total = torch.softmax(scores, -1), 0.0
    for _ in range(3000):
        used = torch.softmax(scores + rule.draw(scores, PLACES, generator), -1)
        torch.testing.assert_close(7 * used, (7 * used).round(), atol=1e-9, rtol=0)
        total = total + used / 3000
    assert (total - weights).abs().max() < 5 * math.sqrt(0.25 / 3000 / 7)


@pytest.mark.parametrize("systematic", [False, True])
def test_santa_errs_as_its_law_says(systematic):
    given, rule = products(), Santa(7, systematic)
    scores, values = given.exact()[0], given.key[1][:, :3]
    law = sampler_law(rule, scores, values, PLACES)
    exact, generator = torch.softmax(scores, -1) @ values, torch.Generator().manual_seed(4)
    errors = []
    for _ in range(4000):
        used = torch.softmax(scores + rule.draw(scores, PLACES, generator), -1)
        errors.append((used @ values - exact).square().sum(-1))
    errors = torch.stack(errors)
    assert (
        (errors.mean(0) - torch.from_numpy(law.mse)).abs() < 5 * errors.std(0) / 4000**0.5
    ).all()
    along = (values[:, 0] - exact[:, :1])[None]
    first = weight_law(rule, scores, torch.softmax(scores, -1), PLACES)
    assert (first.bias(along).abs() < 1e-12).all()
    assert (first.variance(along)[0].numpy() <= law.mse).all()


@pytest.mark.parametrize("rule", [MagicPIG(3, 8), VAttention(top=0.0)], ids=repr)
def test_keys_that_come_together_have_no_exact_law(rule):
    both = products()
    given = Products(both.query[0], both.key[0], both.scores)
    with pytest.raises(BadInput, match=r"draws dependent .* no exact law\. Measure it"):
        sampler_law(rule.bind(given), given.exact(), given.key, PLACES)


def test_bytes_count_what_is_looked_at():
    assert Quest(64, 16).selection_bytes(64, 2) == 2 * 64 * 2 / 16
    assert Twilight().candidate_bytes(64, 2) == 64 / 2 + 8
    assert MagicPIG(10, 150).candidate_bytes(64, 2) == 600
    assert Santa(64).selection_bytes(64, 2) == 128
    assert Santa(64).gather_bytes(64, 64, 2) == 128
    assert VAttention(top=0.0).selection_bytes(64, 2) == 0


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Quest(0), "budget"),
        (lambda: Twilight(1.5), "share must lie"),
        (lambda: VAttention(0.0), "epsilon"),
        (lambda: VAttention(delta=2.0), "delta"),
        (lambda: MagicPIG(tables=1), "tables"),
        (lambda: Santa(0), "size"),
        (lambda: Quest(4).probabilities(torch.zeros(1, 4), torch.tensor([3])), "bind"),
    ],
)
def test_bad_settings_are_one_sentence(make, sentence):
    with pytest.raises(BadInput, match=sentence):
        make()
