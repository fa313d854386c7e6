import numpy as np
import pytest

from attnlimit.errors import BadInput
from attnlimit.sparse import SparseTask, as_blocks
from attnlimit.sparse.train.joint import train_jointly


@pytest.mark.slow
def test_joint_descent_finds_the_signal_too():
    task = SparseTask(8, 1, 6.0)
    X, y = task.sample(600, 30, seed=1)
    fresh = task.sample(1000, 30, seed=2)
    trained = train_jointly(X, y, steps=400)
    assert trained.error(as_blocks(*fresh)) < 0.05
    cosine = trained.query @ task.direction(30) / np.linalg.norm(trained.query)
    assert abs(cosine) > 0.5
    with pytest.raises(BadInput, match="bags"):
        train_jointly(X[0], y)
