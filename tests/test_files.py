import pytest

from attnlimit.files import Damaged, read_json, write_atomically


def test_failed_writes_leave_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(
    "content", [b"{", b"[NaN]", b"\xff", b"[" * 100_000, b'["\\ud800"]', b"[1e999]"]
)
def test_what_could_not_be_written_again_is_damaged(tmp_path, content):
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(Damaged, match=r"file\.json is damaged: .+\.$"):
        read_json(path)
