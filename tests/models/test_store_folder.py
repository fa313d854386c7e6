"""A capture at an address is the capture: copied once, by its hash, and mapped from there."""

from __future__ import annotations

import sys

import pytest

import attnlimit as al
from attnlimit.errors import AttnlimitError, BadInput
from attnlimit.models.store import capture_file
from called import call
from every_sampler import made_capture

fsspec = pytest.importorskip("fsspec")
FILE = "layer-0000.safetensors"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNLIMIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "captures"


@pytest.fixture
def kept(tmp_path):
    made_capture(tokens=24).save(tmp_path / "kept")
    return tmp_path / "kept"


@pytest.fixture
def memory(kept):
    """The capture, in a file system that is no disk."""
    system = fsspec.filesystem("memory")
    system.put(str(kept), "/captures/one", recursive=True)
    yield "memory://captures/one"
    system.rm("/captures", recursive=True)


def test_a_capture_at_an_address_is_the_capture(cache, kept, memory):
    here, there = al.models.open_capture(kept), al.models.open_capture(memory)
    assert al.budget(there[0, 0], queries=8) == al.budget(here[0, 0], queries=8)
    copies = {path: path.stat().st_mtime_ns for path in cache.glob("*.safetensors")}
    assert len(copies) == 1
    assert copies.keys() == {cache / f"{there.layers.manifest.layers[0].sha256}-{FILE}"}
    again = al.models.open_capture(f"{memory}/")
    assert again[0, 1].q.shape == here[0, 1].q.shape
    assert {path: path.stat().st_mtime_ns for path in cache.glob("*.safetensors")} == copies


def test_a_local_address_is_mapped_where_it_is(cache, kept):
    capture = al.models.open_capture(f"file://{kept}")
    assert capture[0, 0].q.shape == (24, 8)
    assert not cache.exists()


def test_commands_take_an_address(cache, memory, tmp_path):
    code, _, err = call("plan", "--capture", memory, "--json")
    assert code == 2
    assert "capture again with --probes" in err
    code, _, err = call("tokens", "--capture", memory, "--layer", 0, "--out", tmp_path / "t.html")
    assert code == 0, err


def test_an_archive_is_an_address_too(cache, kept, tmp_path):
    import shutil

    shutil.make_archive(str(tmp_path / "all"), "zip", kept.parent, "kept")
    capture = al.models.open_capture(f"zip://kept::file://{tmp_path / 'all.zip'}")
    assert capture[0, 0].q.shape == (24, 8)


def test_a_damaged_file_is_found_on_the_way(cache, kept, memory):
    system = fsspec.filesystem("memory")
    whole = (kept / FILE).read_bytes()
    for content, says in [
        (whole[:-1] + b"x", "does not have its SHA-256"),
        (whole[:-8], "does not have its SHA-256"),
        (whole + b"x", "larger than it should be"),
        (None, "is missing"),
    ]:
        if content is None:
            system.rm(f"/captures/one/{FILE}")
        else:
            system.pipe(f"/captures/one/{FILE}", content)
        with pytest.raises(BadInput, match=says):
            al.models.open_capture(memory)[0, 0]
        assert not list(cache.glob("*.safetensors*"))


def test_what_cannot_be_reached_is_one_sentence(kept, cache, tmp_path, monkeypatch):
    with pytest.raises(BadInput, match=r"holds no capture: it has no capture\.json"):
        al.models.open_capture("memory://nothing/here")
    with pytest.raises(BadInput, match="cannot be read: Protocol not known"):
        al.models.open_capture("nowhere://a/b")
    for folder in ("s3://bucket/capture", "memory://x"):
        with pytest.raises(BadInput, match="not a folder of this machine"):
            made_capture(tokens=16).save(folder)
    code, _, err = call("tokens", "--capture", "memory://nothing/here")
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(AttnlimitError, match="needs fsspec"):
        capture_file("s3://bucket/capture", "capture.json")
