"""Whatever can be cut, computed and combined can be run, and leaves tables of its own types."""

from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from attnlimit.runs import RunFolder, execute
from attnlimit.runs.experiment import find, halve_draws, whole

SCHEMAS = {
    "odd": pa.schema([("number", pa.int32()), ("root", pa.float64())]),
    "even": pa.schema([("number", pa.int32())]),
}


def compute(shard, seed):
    return pd.DataFrame({"number": [shard["number"]], "root": [shard["number"] ** 0.5]})


def combine(config, rows):
    odd = rows.number % 2 == 1
    return {"odd": rows[odd][["number", "root"]], "even": rows[~odd][["number"]]}


PARITY = SimpleNamespace(
    name="parity",
    path=f"{__name__}:PARITY",
    schemas=SCHEMAS,
    shards=lambda config: ({"number": number} for number in range(config["shards"])),
    compute=compute,
    combine=combine,
    split=whole,
)
CONFIG = {"seed": 0, "shards": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return execute(PARITY, CONFIG, tmp_path_factory.mktemp("runs"))


def test_an_experiment_is_found_by_its_path():
    assert find(PARITY.path) is PARITY


@pytest.mark.parametrize("name", SCHEMAS)
def test_tables_have_their_types(folder, name):
    assert folder.record()["tables"] == list(SCHEMAS)
    written = pa.parquet.read_schema(folder.path / f"{name}.parquet")
    assert written.equals(SCHEMAS[name], check_metadata=False)
    assert folder.table("odd", SCHEMAS["odd"]).number.tolist() == [1, 3]


def test_a_lost_table_is_made_again_from_the_shards(folder):
    shards = {path: path.stat().st_mtime_ns for path in folder.path.glob("shards/*")}
    (folder.path / "even.parquet").unlink()
    assert not RunFolder.open(folder.path).finished
    assert execute(PARITY, CONFIG, folder.path.parent).finished
    assert {path: path.stat().st_mtime_ns for path in folder.path.glob("shards/*")} == shards


def test_halves_begin_where_the_other_ended():
    halves = halve_draws({"draws": 5, "first": 2})
    assert [(half["first"], half["draws"]) for half in halves] == [(2, 2), (4, 3)]
    assert halve_draws({"draws": 1}) == whole({"draws": 1}) == []
