"""What each sampler keeps, by its definition; the laws of all of them are in test_law.py."""

import numpy as np
import pytest
import torch

import attnlimit as al
from every_sampler import sampled_errors

SIZE = 50
SCORES = torch.from_numpy(np.random.default_rng(0).standard_normal((1, SIZE)))


def kept(sampler, place):
    """Keys kept for sure by the query at `place`."""
    chance = sampler.inclusion_probabilities(SCORES, torch.tensor([place]))[0]
    return set(torch.nonzero(chance == 1).ravel().tolist())


def test_what_each_keeps_for_sure():
    best = SCORES[0].argsort(descending=True).tolist()
    assert kept(al.TopK(2), 0) == set(best[:2])
    assert kept(al.SinksAndRecent(2, 3), 20) == {0, 1, 18, 19, 20}
    assert kept(al.Window(8, random=2), 20) == set(range(16, 24))
    assert kept(al.Keep(al.TopK(3), sample=10), 0) == set(best[:3])
    assert kept(al.Keep(None, sample=10), 0) == {best[0]}
    share = float(torch.softmax(SCORES[0], 0)[best[:5]].sum())
    assert kept(al.TopP(share - 1e-9), 0) == set(best[:5])


def test_sampled_keys_come_as_often_as_said_and_weigh_the_inverse():
    sampler = al.Keep(al.TopK(3), sample=10)
    chance = sampler.inclusion_probabilities(SCORES, torch.tensor([0]))[0]
    assert chance[chance < 1].unique().tolist() == pytest.approx([10 / 47])
    added = sampler.draw(SCORES, torch.tensor([0]), torch.Generator().manual_seed(1))[0]
    drawn = added[(added > -torch.inf) & (chance < 1)]
    assert drawn.tolist() == pytest.approx([np.log(4.7)] * len(drawn))
    assert (added[chance == 1] == 0).all()


def test_sizes_count_draws_with_their_repeats():
    generator = torch.Generator().manual_seed(0)
    many = al.Iid(80).draw(SCORES, torch.tensor([0]), generator).exp()
    assert many.sum() == pytest.approx(80)
    some = al.WithoutReplacement(12).draw(SCORES, torch.tensor([0]), generator).exp()
    assert sorted(some[0].tolist()) == [0.0] * 38 + [1.0] * 12


def test_all_keys_leave_no_error():
    sequence = np.random.default_rng(0).standard_normal((20, 2))
    everything = al.WithoutReplacement(20)
    errors = sampled_errors(al.Head(np.eye(2)), sequence, [3, 7], everything, 3)
    np.testing.assert_allclose(errors, 0, atol=1e-12)


@pytest.mark.parametrize("sampler", [al.Iid(), al.WithoutReplacement()], ids=repr)
def test_a_sampler_without_its_size_says_so(sampler):
    with pytest.raises(al.BadInput, match="needs n"):
        sampler.inclusion_probabilities(SCORES, torch.tensor([0]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: al.TopK(0),
        lambda: al.TopP(0),
        lambda: al.Threshold(0),
        lambda: al.Window(0),
        lambda: al.SinksAndRecent(0, 0),
        lambda: al.Keep(al.Iid(3)),
        lambda: al.Keep("best"),
        lambda: al.Keep(al.TopK(2), sample=-1),
    ],
)
def test_empty_samplers_are_refused(make):
    with pytest.raises(al.BadInput):
        make()


def test_the_smallest_sizes_and_the_bytes_that_are_read():
    assert al.Window(1, random=9).with_size(5) == al.Window(1, random=4)
    assert al.TwoLevel(8.0).gather_bytes(64, 32, 2) == (64 + 32) * 2
    with pytest.raises(al.BadInput, match="share must lie"):
        al.TopP(1.5)
