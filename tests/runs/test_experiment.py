"""Whatever can be cut, computed and combined can be run."""

from types import SimpleNamespace

import pandas as pd
import pytest

from attnlimit.registry import find
from attnlimit.reproduce import execute
from attnlimit.runs import RunFolder

PARITY = SimpleNamespace(
    name="parity",
    path=f"{__name__}:PARITY",
    shards=lambda config: ({"number": number} for number in range(config["shards"])),
    compute=lambda shard, seed: pd.DataFrame({"odd": [shard["number"] % 2]}),
    combine=lambda config, rows: rows.groupby("odd", as_index=False)["shard"].count(),
)
CONFIG = {"seed": 0, "shards": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return execute(PARITY, CONFIG, tmp_path_factory.mktemp("runs"))


def test_an_experiment_is_found_by_its_path():
    assert find(PARITY.path) is PARITY


def test_a_lost_table_is_made_again_from_the_shards(folder):
    assert folder.table()["shard"].tolist() == [3, 2]
    shards = {path: path.stat().st_mtime_ns for path in folder.path.glob("shards/*")}
    (folder.path / "curves.parquet").unlink()
    assert not RunFolder(folder.path).finished
    assert execute(PARITY, CONFIG, folder.path.parent).finished
    assert {path: path.stat().st_mtime_ns for path in folder.path.glob("shards/*")} == shards
