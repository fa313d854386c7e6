import pytest

from attnlimit.reproduce.experiment import grid
from attnlimit.reproduce.gaussian import EXPERIMENT


@pytest.mark.parametrize(("replicates", "block"), [(10, 5), (11, 5), (3, 5), (1, 1)])
def test_blocks_hold_all_draws(replicates, block):
    blocks = EXPERIMENT.blocks({"replicates": replicates, "block": block})
    assert sum(one["draws"] for one in blocks) == replicates
    assert max(one["draws"] for one in blocks) <= block
    assert [one["stream"] for one in blocks] == list(range(len(blocks)))


def test_halves_hold_all_draws_and_one_draw_cannot_be_cut():
    parts, whole = [], [{"draws": 7, "first": 2}]
    while whole:
        shard = whole.pop()
        halves = EXPERIMENT.split(shard)
        whole += halves
        parts += [] if halves else [shard]
    assert sorted(part["first"] for part in parts) == list(range(2, 9))
    assert {part["draws"] for part in parts} == {1}


def test_grid_is_whole_and_ends_where_it_should():
    assert grid(10, 1000, 3) == [10, 100, 1000]
    assert grid(1, 4, 50) == [1, 2, 3, 4]
