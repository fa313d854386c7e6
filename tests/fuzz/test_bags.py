"""Labelled bags may come as any file: they are read, or refused in one sentence."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlimit.bags import Bags, read_bags
from attnlimit.errors import BadInput
from attnlimit.files import to_parquet
from fuzz.hostile import damaged, one_sentence, share, spoiled, strange_text

FRAME = pd.DataFrame({"bag": [0, 0, 1, 2], "label": [1, 1, 0, 1], "x": [0.1, 0.2, 0.3, 0.4]})
CSV = FRAME.to_csv(index=False).encode()
LISTING = b"bag,label\na,1\nb,0\n"


def array_file(array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


ARRAY = array_file(np.ones((3, 2)))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("bags")


def use(path):
    with one_sentence():
        assert isinstance(read_bags(path), Bags)


@share(0.3)
@given(damaged(CSV) | st.binary(max_size=200) | spoiled(FRAME).map(lambda f: f.to_csv().encode()))
def test_csv_files(place, content):
    (place / "a.csv").write_bytes(content)
    use(place / "a.csv")


@share(0.3)
@given(damaged(to_parquet(FRAME)) | spoiled(FRAME).map(to_parquet))
def test_parquet_files(place, content):
    (place / "a.parquet").write_bytes(content)
    use(place / "a.parquet")


@share(0.3)
@given(
    damaged(LISTING)
    | st.binary(max_size=100)
    | strange_text.map(lambda name: f"bag,label\n{name},1\nb,0\n".encode("utf-8", "replace")),
    damaged(ARRAY) | st.just(ARRAY),
)
def test_folders(place, listing, array):
    folder = place / "folder"
    folder.mkdir(exist_ok=True)
    (folder / "labels.csv").write_bytes(listing)
    for name in "ab":
        (folder / f"{name}.npy").write_bytes(array)
    use(folder)


def test_a_listing_cannot_lead_out(tmp_path):
    np.save(tmp_path / "outside.npy", np.ones((3, 2)))
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("../outside", str(tmp_path / "outside")):
        (folder / "labels.csv").write_text(f"bag,label\n{name},1\n{name},0\n")
        with pytest.raises(BadInput, match="leads out of"):
            read_bags(folder)
    (folder / "link.npy").symlink_to("../outside.npy")
    (folder / "labels.csv").write_text("bag,label\nlink,1\nlink,0\n")
    with pytest.raises(BadInput, match="leads out of"):
        read_bags(folder)
