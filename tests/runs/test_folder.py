import json

import numpy as np
import pandas as pd
import pytest

import attnlimit
from attnlimit.errors import BadInput
from attnlimit.files import to_parquet
from attnlimit.runs import FolderBusy, RunFolder
from attnlimit.runs.folder import run_key

CONFIG = {"seed": 0, "n": [10, 20]}
FRAME = pd.DataFrame({"n": [10, 20], "value": [0.5, 0.25], "list": [[1.0], [2.0, 3.0]]})


def test_key_depends_on_everything_a_result_depends_on():
    keys = {
        run_key("a", CONFIG),
        run_key("b", CONFIG),
        run_key("a", CONFIG | {"seed": 1}),
        run_key("a", CONFIG, weights="abc"),
        run_key("a", CONFIG, version="999"),
    }
    assert len(keys) == 5
    assert run_key("a", CONFIG, version=attnlimit.__version__) in keys


def test_key_does_not_depend_on_the_order_of_the_configuration():
    assert run_key("a", {"x": 1, "y": 2}) == run_key("a", {"y": 2, "x": 1})


@pytest.mark.parametrize("value", [float("nan"), np.zeros(2), object()])
def test_configurations_must_be_json(value):
    with pytest.raises(BadInput, match="JSON"):
        run_key("a", {"x": value})


def test_prepare_finds_what_it_made(tmp_path):
    first = RunFolder.prepare(tmp_path, "a", CONFIG)
    assert RunFolder.prepare(tmp_path, "a", CONFIG) == first
    assert RunFolder(first.path).record()["config"] == CONFIG
    assert not first.finished
    with pytest.raises(BadInput, match="not finished"):
        first.table()


def test_a_folder_of_another_run_is_refused(tmp_path):
    folder = RunFolder.prepare(tmp_path, "a", CONFIG)
    record = folder.record() | {"config": {"seed": 1}, "key": run_key("a", {"seed": 1})}
    (folder.path / "run.json").write_text(json.dumps(record))
    with pytest.raises(BadInput, match="another run"):
        RunFolder.prepare(tmp_path, "a", CONFIG)


@pytest.mark.parametrize("content", ["{", "[]", '{"key": 1}'])
def test_a_damaged_record_is_named(tmp_path, content):
    folder = RunFolder.prepare(tmp_path, "a", CONFIG)
    (folder.path / "run.json").write_text(content)
    with pytest.raises(BadInput, match="damaged"):
        folder.record()


def test_shards_come_back_and_damage_is_noticed(tmp_path):
    folder = RunFolder.prepare(tmp_path, "a", CONFIG)
    assert folder.read_shard(0) is None
    folder.write_shard(0, to_parquet(FRAME), 1.0)
    pd.testing.assert_frame_equal(folder.read_shard(0), FRAME)
    path = folder.path / "shards" / "00000.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    assert folder.read_shard(0) is None
    folder.write_shard(0, to_parquet(FRAME), 1.0)
    (folder.path / "shards" / "00000.json").unlink()
    assert folder.read_shard(0) is None


@pytest.mark.parametrize("name", ["../out.parquet", "/etc/out.parquet", "a/../../out", ".", ""])
def test_names_cannot_leave_the_folder(tmp_path, name):
    folder = RunFolder.prepare(tmp_path, "a", CONFIG)
    with pytest.raises(BadInput, match="leads out"):
        folder.file(name)


def test_links_cannot_leave_the_folder(tmp_path):
    folder = RunFolder.prepare(tmp_path, "a", CONFIG)
    (folder.path / "shards").symlink_to(tmp_path)
    with pytest.raises(BadInput, match="leads out"):
        folder.write_shard(0, to_parquet(FRAME), 1.0)


def test_two_runs_cannot_share_a_folder(tmp_path):
    folder = RunFolder.prepare(tmp_path, "a", CONFIG)
    with folder.lock(), pytest.raises(FolderBusy, match="Another process"):
        folder.lock()
    with folder.lock():
        pass


def test_half_written_files_are_cleared(tmp_path):
    folder = RunFolder.prepare(tmp_path, "a", CONFIG)
    leftover = folder.path / "shards" / "00000.parquet.77.partial"
    leftover.parent.mkdir()
    leftover.write_bytes(b"half")
    with folder.lock():
        assert not leftover.exists()


def test_an_unwritable_place_is_said_in_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="Cannot write"):
        RunFolder.prepare(tmp_path / "file", "a", CONFIG)
