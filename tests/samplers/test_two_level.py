"""Sampling in two stages: probabilities, draws, and the first-order law of pages."""

import pytest
import torch

import attnlimit as al
from attnlimit.samplers import Products, parse_sampler, sampler_spec
from attnlimit.theory.one_query.first_order import weight_law

N, D = 900, 32


def products(seed=0, heads=2, queries=(899, 640, 100)):
    generator = torch.Generator().manual_seed(seed)
    key = torch.randn(heads, N, D, generator=generator) * 0.4
    key = key + torch.randn(heads, 15, D, generator=generator).repeat_interleave(60, 1) * 0.3
    query = torch.randn(heads, len(queries), D, generator=generator)
    places = torch.tensor(queries)
    hidden = torch.arange(N) > places[:, None]
    return Products(query, key, lambda s: s.masked_fill(hidden, -torch.inf)), places


def test_it_is_written_and_read():
    assert parse_sampler(sampler_spec(al.TwoLevel(48.0))) == al.TwoLevel(48.0)
    with pytest.raises(al.BadInput, match="c must be"):
        al.TwoLevel(-1)


def test_draws_have_the_stated_probabilities():
    given, places = products()
    scores = given.exact()
    bound = al.TwoLevel(30.0).bind(given)
    wanted = bound.inclusion_probabilities(scores, places)
    generator = torch.Generator().manual_seed(1)
    kept = torch.stack([bound.draw(scores, places, generator) > -torch.inf for _ in range(3000)])
    share = kept.double().mean(0)
    spread = (wanted * (1 - wanted) / 3000).sqrt().double()
    assert ((share - wanted).abs() <= 5 * spread + 1e-6).all()
    pages, _ = bound.page_probabilities(places)
    assert float(pages[:, 0].min()) < 0.5  # pages are really left out


def test_pages_of_equal_keys_are_read_equally_often():
    key = torch.randn(2, N, D, generator=torch.Generator().manual_seed(5))
    given = Products(torch.full((2, 1, D), 1e-3), key, lambda scores: scores)
    pages, _ = al.TwoLevel(10.0).bind(given).page_probabilities(torch.tensor([N - 1]))
    drawn = pages[pages < 1]
    assert len(drawn) > 16
    torch.testing.assert_close(drawn, torch.full_like(drawn, 10 * 64 / N), rtol=0.05, atol=0)


def test_the_mass_of_a_page_is_about_the_weight_of_its_keys():
    """By the mean and variance of normal scores: e^(m + v/2) times their number."""
    generator = torch.Generator().manual_seed(6)
    centres = torch.randn(2, 15, D, generator=generator).repeat_interleave(64, 1)[:, :N]
    key = torch.randn(2, N, D, generator=generator) + centres
    query = 0.15 * torch.randn(2, 8, D, generator=generator)
    pages = al.TwoLevel(10.0).bind(Products(query, key, lambda scores: scores)).pages
    ratio = (pages.mass / pages.weight)[..., 1:-2].log()
    assert float(ratio.mean().abs()) < 0.03
    assert float(ratio.std()) < 0.2


@pytest.mark.parametrize("c", [60.0, 200.0])
def test_the_law_of_pages_holds_in_draws(c):
    given, places = products(3)
    scores = given.exact()
    bound = al.TwoLevel(c).bind(given)
    weights = torch.softmax(scores, -1)
    along = torch.randn(scores.shape, generator=torch.Generator().manual_seed(2))
    along = along - (weights * along).sum(-1, keepdim=True)
    law = weight_law(bound, scores, weights, places)
    generator = torch.Generator().manual_seed(4)
    moved = torch.stack([
        (torch.softmax(scores + bound.draw(scores, places, generator), -1) * along).sum(-1)
        for _ in range(4000)
    ]).double()  # fmt: skip
    variance = law.variance(along).double()
    measured = moved.var(0)
    stderr = ((moved - moved.mean(0)) ** 2).std(0) / 4000**0.5
    assert ((measured - variance).abs() < 5 * stderr + 0.15 * variance).all()
    bias_error = moved.std(0) / 4000**0.5
    assert ((moved.mean(0) - law.bias(along)).abs() < 5 * bias_error + 0.1 * variance.sqrt()).all()


def test_far_keys_are_found_about_the_mean_of_their_page():
    given, places = products(5)
    given.key[:, 200] += 3.0
    given.key[:, 230] -= 4.0
    given.key[0, 192:256] += 20.0
    _, apart = al.TwoLevel(30.0).bind(given).page_probabilities(places)
    for page in range(1, N // 64):
        own = given.key[:, 64 * page : 64 * page + 64]
        assert (apart[:, 64 * page : 64 * page + 64].sum(1) == 2).all()
        if page == 3:
            far = (own - own.mean(1, keepdim=True)).norm(dim=-1).topk(2).indices
            assert set(far[0].tolist()) == {200 - 192, 230 - 192}
            assert apart[:, [200, 230]].all()


def test_few_pages_are_read_with_one_level():
    given, places = products(queries=(100, 200))
    scores = given.exact()
    two = al.TwoLevel(20.0).bind(given).inclusion_probabilities(scores, places)
    result = al.Threshold(20.0, proxy="index").bind(given).inclusion_probabilities(scores, places)
    torch.testing.assert_close(two, result)


def test_two_levels_select_by_summaries_and_far_keys():
    """For each page of 64: mean and variance in two bytes, a mass, and two keys in 4 bits."""
    assert al.TwoLevel(8.0).selection_bytes(32, 2) == (4 * 32 + 4 + 2 * (16 + 4)) / 64
