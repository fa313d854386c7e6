"""First tokens and neighbours: always as many, the query itself among them."""

import pytest
import torch

import attnlimit as al
from attnlimit.samplers import SinksAndWindow


@pytest.mark.parametrize(("sinks", "width"), [(4, 10), (0, 5), (3, 0), (4, 16), (4, 30)])
def test_every_query_keeps_as_many_and_itself(sinks, width):
    size, sampler = 20, SinksAndWindow(sinks, width)
    places = torch.arange(size)
    scores = torch.zeros(size, size)
    kept = sampler.inclusion_probabilities(scores, places) == 1
    drawn = sampler.draw(scores, places, torch.Generator()) == 0
    assert (kept == drawn).all()
    assert (kept.sum(1) == min(size, sinks + width)).all()
    assert kept[:, :sinks].all()
    if width:
        assert kept[places, places].all()


def test_a_window_of_nothing_is_refused():
    with pytest.raises(al.BadInput, match="keeps nothing"):
        SinksAndWindow(0, 0)
