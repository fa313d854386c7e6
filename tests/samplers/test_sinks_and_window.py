"""First tokens and neighbours: the sampler draws what the scheme keeps, and always as many."""

import numpy as np
import pytest
import torch

import attnlimit as al
from attnlimit.samplers.sinks_and_window import SinksAndWindow


@pytest.mark.parametrize(("sinks", "width"), [(4, 10), (0, 5), (3, 0), (4, 16), (4, 30)])
def test_the_sampler_keeps_what_the_scheme_does(sinks, width):
    size, sampler = 20, SinksAndWindow(sinks, width)
    places = torch.arange(size)
    kept = sampler.keep(torch.zeros(size, size), places) == 1
    for place in range(size):
        keys, added = sampler.draw(np.zeros(size), place, 0, np.random.default_rng(0))
        assert sorted(keys) == np.flatnonzero(kept[place]).tolist()
        assert len(keys) == min(size, sinks + width)
        assert (added == 0).all()
        if width and place >= sinks:
            assert place in keys


def test_a_window_of_nothing_is_refused():
    with pytest.raises(al.BadInput, match="keeps nothing"):
        SinksAndWindow(0, 0)
