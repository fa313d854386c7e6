"""Text comes with its source and licence, and bad sources are one sentence."""

from __future__ import annotations

import io

import pytest

from attnlimit.errors import BadInput
from attnlimit.models.corpora import read_corpus, wikipedia


def test_wikipedia_articles_are_plain_text():
    pytest.importorskip("gensim")
    articles = wikipedia()
    assert len(articles) > 90
    assert "Anarchism" in articles.titles
    text = articles["anarchism"].text
    assert text.startswith("Anarchism is a political philosophy")
    assert "[[" not in text
    assert "{{" not in text
    assert "'''" not in text
    assert "CC BY-SA" in articles.licence
    assert read_corpus("wikipedia:Autism")[0].title == "Autism"
    with pytest.raises(BadInput, match="no document"):
        read_corpus("wikipedia:No such article")


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
    record = corpus.record()
    assert record["documents"] == 2
    assert record["sha256"] != read_corpus(str(tmp_path / "b.txt")).sha256


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
