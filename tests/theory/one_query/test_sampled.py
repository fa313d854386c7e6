"""What laws of sampled keys share: distances to the last digit, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnlimit.errors import BadInput
from attnlimit.theory.one_query.sampled import checked, squared_distance


def test_keys_next_to_the_output_keep_their_digits():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(30, 4, generator=generator).double()
    output = values[:6] + torch.logspace(-12, 0, 6).double()[:, None]
    apart = (output[:, None] - values).square().sum(-1)
    np.testing.assert_allclose(squared_distance(output, values), apart, rtol=1e-9)


def test_queries_without_keys_are_refused():
    with pytest.raises(BadInput, match="no key"):
        checked(np.ones((2, 0)), np.ones((0, 3)))
