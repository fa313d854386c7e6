"""The one door from a sampler to its exact law: how it draws decides, not which class it is."""

import numpy as np
import pytest
import torch

import attnlimit as al
from attnlimit.theory.one_query.kept import subset_law
from attnlimit.theory.one_query.population import population_law
from attnlimit.theory.one_query.sampler import sampler_law

SCORES = torch.randn(3, 20, generator=torch.Generator().manual_seed(0), dtype=torch.double)
VALUES = torch.randn(20, 2, generator=torch.Generator().manual_seed(1), dtype=torch.double)
QUERIES = torch.arange(17, 20)


class Own(al.Sampler):
    """A user's own way to draw some keys, all alike."""

    def __init__(self, how):
        self.how = how

    @property
    def draws(self):
        return self.how

    def probabilities(self, scores, queries):
        return torch.full_like(scores, 0.3)


class OwnSized(Own):
    size = 6


def test_how_a_sampler_draws_decides_its_law():
    law = sampler_law(OwnSized("without replacement"), SCORES, VALUES, QUERIES)
    np.testing.assert_allclose(law.mse, subset_law(SCORES, VALUES, 6).mse)
    law = sampler_law(OwnSized("with replacement"), SCORES, VALUES, QUERIES)
    np.testing.assert_allclose(law.mse, population_law(SCORES, VALUES, [6]).mse[:, 0])


@pytest.mark.parametrize("how", ["with replacement", "without replacement"])
def test_a_draw_of_unknown_size_is_refused(how):
    with pytest.raises(al.BadInput, match="give it a size"):
        sampler_law(Own(how), SCORES, VALUES, QUERIES)


def test_what_draws_nothing_errs_by_a_number():
    law = sampler_law(al.TopK(5), SCORES, VALUES, QUERIES)
    np.testing.assert_allclose(law.mse, (law.bias**2).sum(axis=1))
    np.testing.assert_allclose(law.kept, 5)
