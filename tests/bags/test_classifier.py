import numpy as np
import pytest

from attnlimit.bags.pooling import best_settings
from attnlimit.errors import NotConverged

LABELS = np.where(np.arange(40) % 2, 1.0, -1.0)
RNG = np.random.default_rng(0)
BLURRED, CLEAR = (2 * LABELS + noise * RNG.standard_normal(40) for noise in (3.0, 1.0))


@pytest.mark.parametrize("shrunk", [1.0, 1e-3])
def test_what_tells_better_is_chosen_however_much_it_is_shrunk(shrunk):
    odds = {0.1: BLURRED, 1.0: shrunk * CLEAR}
    chosen = best_settings(
        LABELS, {"ridge": (0.1, 1.0)}, lambda rest: lambda ridge: lambda at: odds[ridge][at]
    )
    assert chosen == {"ridge": 1.0}


def test_a_setting_that_does_not_settle_is_not_chosen():
    def train(rest):
        def fit(ridge):
            if ridge < 1:
                raise NotConverged("no.", reached=1.0)
            return lambda at: 0.0 * LABELS[at]

        return fit

    assert best_settings(LABELS, {"ridge": (0.1, 1.0)}, train) == {"ridge": 1.0}
