import pytest

from attnlimit.reproduce.experiment import grid
from attnlimit.reproduce.temperatures import GAUSSIAN as EXPERIMENT


@pytest.mark.parametrize(("replicates", "block"), [(10, 5), (11, 5), (3, 5), (1, 1)])
def test_blocks_hold_all_draws(replicates, block):
    blocks = EXPERIMENT.blocks({"replicates": replicates, "block": block})
    assert sum(block["draws"] for block in blocks) == replicates
    assert max(block["draws"] for block in blocks) <= block
    assert [block["stream"] for block in blocks] == list(range(len(blocks)))


def test_grid_is_whole_and_ends_where_it_should():
    assert grid(10, 1000, 3) == [10, 100, 1000]
    assert grid(1, 4, 50) == [1, 2, 3, 4]
