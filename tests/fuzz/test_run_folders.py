"""A run folder may be damaged or hostile: it is read, counted as missing, or one sentence."""

from __future__ import annotations

import io
import json
import os

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlimit.errors import BadInput
from attnlimit.files import digest, to_parquet
from attnlimit.runs import RunFolder
from attnlimit.runs.folder import run_key
from fuzz.hostile import (
    as_json,
    damaged,
    json_values,
    nested,
    one_sentence,
    rewritten,
    share,
    spoiled,
    strange_text,
)

CONFIG = {"seed": 0, "n": [10, 20], "scale": 0.5, "text": "a", "inner": {"a": [1, 2]}}
FRAME = pd.DataFrame(
    {
        "n": [10, 20, 30],
        "value": [0.5, np.nan, 0.25],
        "list": [[1.0], [], [2.0]],
        "name": list("abc"),
    }
)
TABLE = to_parquet(FRAME)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = RunFolder.prepare(tmp_path_factory.mktemp("runs"), "a", CONFIG)
    made.write_shard(0, TABLE, 0.1)
    made.write_table(FRAME)
    (made.path / "as-written.json").write_bytes((made.path / "run.json").read_bytes())
    return made


@pytest.fixture(scope="module")
def record(folder):
    return json.loads((folder.path / "as-written.json").read_bytes())


def use_record(folder, content):
    (folder.path / "run.json").write_bytes(content)
    with one_sentence():
        record = RunFolder(folder.path).record()
        assert isinstance(record["experiment"], str)
        assert isinstance(record["config"], dict)
        json.dumps(record, ensure_ascii=False, allow_nan=False).encode()
    with one_sentence():
        RunFolder.prepare(folder.path.parent, "a", CONFIG)


@share(8)
@given(st.binary(max_size=300) | json_values.map(as_json) | nested.map(str.encode))
def test_run_json_of_noise(folder, content):
    use_record(folder, content)


@share(14)
@given(st.data())
def test_a_damaged_run_json(folder, record, data):
    use_record(folder, data.draw(damaged(json.dumps(record, indent=1).encode())))


@share(6)
@given(st.data())
def test_a_run_json_of_nonsense(folder, record, data):
    content = data.draw(rewritten(record))
    if isinstance(content, dict) and data.draw(
        st.booleans()
    ):  # someone who knows how the key is made
        with one_sentence():
            content["key"] = run_key("a", content.get("config"), content.get("weights"))
    use_record(folder, as_json(content))


def test_the_record_itself_is_fine(folder, record):
    use_record(folder, json.dumps(record).encode())
    assert folder.record() == record


def use_shard(folder, content, note):
    (folder.path / "shards" / "00000.parquet").write_bytes(content)
    (folder.path / "shards" / "00000.json").write_bytes(note)
    with one_sentence():
        frame = folder.read_shard(0)
        assert frame is None or isinstance(frame, pd.DataFrame)
        return frame
    return None


def note_for(content):
    return json.dumps({"sha256": digest(content), "seconds": 0.1}).encode()


@share(16)
@given(damaged(TABLE))
def test_a_damaged_shard_is_missing(folder, content):
    frame = use_shard(folder, content, note_for(TABLE))
    assert frame is None or content == TABLE


@share(10)
@given(
    st.binary(max_size=200)
    | json_values.map(as_json)
    | nested.map(str.encode)
    | damaged(note_for(TABLE))
    | rewritten(json.loads(note_for(TABLE))).map(as_json)
)
def test_a_damaged_note(folder, note):
    use_shard(folder, TABLE, note)


@share(10)
@given(damaged(TABLE) | st.binary(max_size=300))
def test_a_checksum_over_garbage(folder, content):
    use_shard(folder, content, note_for(content))


def use_curves(folder, content):
    (folder.path / "curves.parquet").write_bytes(content)
    with one_sentence():
        assert folder.finished in (True, False)
        frame = folder.table()
        assert isinstance(frame, pd.DataFrame)


@share(8)
@given(damaged(TABLE) | st.binary(max_size=300))
def test_damaged_curves(folder, content):
    use_curves(folder, content)


@share(1)
@given(spoiled(FRAME))
def test_curves_of_nonsense(folder, frame):
    use_curves(folder, to_parquet(frame))


@share(3)
@given(strange_text | st.sampled_from(["..", "../a", "shards/../../x", "/", "a/b", "a\0"]))
def test_names_stay_inside(folder, name):
    with one_sentence():
        assert folder.path.resolve() in folder.file(name).parents


def test_a_flipped_bit_in_the_numbers_is_found(folder):
    frame = pd.DataFrame({"value": np.random.default_rng(0).normal(size=500)})
    folder.write_table(frame)
    path = folder.path / "curves.parquet"
    content = path.read_bytes()
    assert folder.table().equals(frame)
    for place in range(100, 3600, 100):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert not folder.finished
        with pytest.raises(BadInput, match=r"damaged: .*run its command again"):
            folder.table()


def test_a_table_that_unpacks_to_too_much_is_refused(folder):
    rows = pyarrow.chunked_array([pyarrow.array(np.zeros(10**6, dtype=np.int8))] * 101)
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"value": rows}), buffer, compression="zstd")
    content = buffer.getvalue()
    assert len(content) < 500_000
    assert use_shard(folder, content, note_for(content)) is None
    (folder.path / "curves.parquet").write_bytes(content)
    with pytest.raises(BadInput, match=r"it unpacks to 1.01e\+08 values"):
        folder.table()


@pytest.mark.parametrize("name", ["run.json", "curves.parquet", "shards", ".lock"])
def test_links_do_not_lead_out(tmp_path, name):
    folder = RunFolder.prepare(tmp_path / "runs", "a", CONFIG)
    folder.write_shard(0, TABLE, 0.1)
    folder.write_table(FRAME)
    inside, outside = folder.path / name, tmp_path / "outside"
    if inside.exists():
        inside.rename(outside)
    else:
        outside.write_text("precious")
    inside.symlink_to(outside)
    if name == "shards":
        assert folder.read_shard(0) is None
        with pytest.raises(BadInput, match="leads out"):
            folder.write_shard(0, TABLE, 0.1)
        return
    read = {"run.json": folder.record, "curves.parquet": folder.table, ".lock": folder.lock}[name]
    before = outside.read_bytes()
    with pytest.raises(BadInput, match="leads out"):
        read()
    assert outside.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_not_waited_for(tmp_path):
    folder = RunFolder.prepare(tmp_path, "a", CONFIG)
    folder.write_shard(0, TABLE, 0.1)
    for name in ("shards/00000.parquet", "run.json", "curves.parquet"):
        (folder.path / name).unlink(missing_ok=True)
        os.mkfifo(folder.path / name)
    with one_sentence():
        assert folder.read_shard(0) is None
        assert not folder.finished
    with one_sentence():
        folder.record()
