"""One plan that several tests look at: planning trains a few hundred poolings."""

import pytest

from attnlimit.sparse import SparseTask
from drawn_bags import drawn


@pytest.fixture(scope="session")
def pilot():
    return drawn(SparseTask(6, 1, 5.0), 60, 5, seed=5)


@pytest.fixture(scope="session")
def plan(pilot):
    pytest.importorskip("sklearn")
    from attnlimit.bags import plan as plan_bags

    return plan_bags(pilot, [60, 240])
