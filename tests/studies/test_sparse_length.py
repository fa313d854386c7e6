import pytest

from attnlimit.sparse import SparseTask, readout
from sparse_length import transfer_error

TASK = SparseTask(10, 1, 5.0)


def test_transfer_to_the_same_task_is_the_test_error():
    trained = readout(TASK, 2.0, cosine=0.9, sharpness=2.0)
    assert transfer_error(trained, TASK) == pytest.approx(trained.test_error, abs=1e-12)
    assert transfer_error(trained, SparseTask(100, 1, 5.0)) > trained.test_error
