"""Where does text come from? Wikipedia articles, a file, a folder, standard input, a data set."""

from __future__ import annotations

import bz2
import hashlib
import html
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from attnlimit.errors import BadInput, MissingExtra

ARTICLES = "test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
TEXT_SUFFIXES = (".txt", ".md", ".rst", ".text")


@dataclass(frozen=True)
class Document:
    """One text with its title."""

    title: str
    text: str


@dataclass(frozen=True)
class Corpus:
    """Documents, where they came from and under which licence."""

    documents: tuple[Document, ...]
    source: str
    licence: str

    def __len__(self) -> int:
        return len(self.documents)

    def __iter__(self) -> Iterator[Document]:
        return iter(self.documents)

    def __getitem__(self, key: int | str) -> Document:
        """Return a document by its place or its title."""
        if isinstance(key, str):
            for document in self.documents:
                if document.title.lower() == key.lower():
                    return document
            close = get_close_matches(key, self.titles, n=3, cutoff=0.3) or self.titles[:3]
            raise BadInput(
                f"{self.source} has no document {key!r}; it has {len(self)}, "
                f"such as {', '.join(close)}."
            )
        if not -len(self) <= key < len(self):
            raise BadInput(
                f"There is no number {key} in {self.source}, documents are numbered "
                f"0 to {len(self) - 1}."
            )
        return self.documents[key]

    @property
    def titles(self) -> list[str]:
        """Titles in order."""
        return [document.title for document in self.documents]

    def joined(self, separator: str = "\n\n") -> str:
        """All documents as one text."""
        return separator.join(document.text for document in self.documents)

    @property
    def sha256(self) -> str:
        """Hash of titles and texts: what a run records."""
        digest = hashlib.sha256()
        for document in self.documents:
            digest.update(f"{document.title}\0{document.text}\0".encode())
        return digest.hexdigest()

    def record(self) -> dict[str, str | int]:
        """Source, licence, size and hash, for a run's configuration."""
        return {
            "source": self.source,
            "licence": self.licence,
            "documents": len(self),
            "sha256": self.sha256,
        }


def read_corpus(source: str) -> Corpus:
    """Read text from `source`.

    Parameters
    ----------
    source : str
        "wikipedia" for all bundled articles, "wikipedia:TITLE" for one; "-" for standard input; a
        text file; a folder of text files; "hub:NAME" for a Hugging Face data set when online.
    """
    if source == "-":
        return _checked(Corpus((Document("stdin", sys.stdin.read()),), "standard input", "user's"))
    if source == "wikipedia":
        return wikipedia()
    if source.startswith("wikipedia:"):
        articles = wikipedia()
        title = source.removeprefix("wikipedia:")
        return Corpus((articles[title],), articles.source, articles.licence)
    if source.startswith("hub:"):
        return _dataset(source.removeprefix("hub:"))
    path = Path(source).expanduser()
    if path.is_dir():
        return _folder(path)
    if path.is_file():
        return _checked(Corpus((_document(path),), f"file {path}", "user's"))
    raise BadInput(
        f"There is no text at {source!r}: give a file, a folder, - for standard input, "
        "wikipedia, wikipedia:TITLE or hub:NAME."
    )


@lru_cache(maxsize=1)
def wikipedia() -> Corpus:
    """Return the 107 English Wikipedia articles that come with gensim."""
    spec = find_spec("gensim")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(
            "The Wikipedia articles are inside gensim: run `pip install 'attnlimit[corpora]'`."
        )
    path = Path(next(iter(spec.submodule_search_locations))) / ARTICLES
    if not path.is_file():
        raise MissingExtra(
            "This gensim has no Wikipedia articles in it; run `pip install gensim==4.4.0`."
        )
    from gensim.corpora.wikicorpus import extract_pages, filter_wiki

    documents = []
    with bz2.open(path) as file:
        for title, markup, _ in extract_pages(file, filter_namespaces=("0",)):
            if markup.lstrip().lower().startswith("#redirect"):
                continue
            text = _plain(filter_wiki(markup))
            if len(text.split()) >= 50:
                documents.append(Document(title, text))
    return Corpus(
        tuple(documents), "English Wikipedia, articles inside gensim", "CC BY-SA 3.0 and GFDL"
    )


def _plain(text: str) -> str:
    """Drop what is left of wiki markup: headings' equal signs, quotes, list marks, blank lines."""
    text = html.unescape(text)
    text = re.sub(r"'{2,}", "", text)
    text = re.sub(r"^\s*=+\s*(.*?)\s*=+\s*$", r"\1.", text, flags=re.MULTILINE)
    text = re.sub(r"^[*#:;|!{}\-]+.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"[ \t]+", " ", text)
    return re.sub(r"\s*\n\s*", "\n", text).strip()


def _folder(path: Path) -> Corpus:
    files = sorted(
        file for file in path.rglob("*") if file.is_file() and file.suffix in TEXT_SUFFIXES
    )
    if not files:
        raise BadInput(f"{path} has no text files ({', '.join(TEXT_SUFFIXES)}) in it.")
    return _checked(Corpus(tuple(_document(file) for file in files), f"folder {path}", "user's"))


def _document(path: Path) -> Document:
    try:
        return Document(path.stem, path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not text in UTF-8; convert it first.") from None


def _dataset(name: str) -> Corpus:
    try:
        from datasets import load_dataset
    except ImportError:
        raise MissingExtra("Data sets from the hub need `pip install datasets`.") from None
    try:
        rows = load_dataset(name, split="train", trust_remote_code=False)
        column = next(key for key in ("text", "content", "document") if key in rows.column_names)
    except StopIteration:
        raise BadInput(f"The data set {name!r} has no column text, content or document.") from None
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise BadInput(f"The data set {name!r} cannot be loaded: {reason}.") from None
    licence = getattr(rows.info, "license", "") or "see the data set's card"
    documents = tuple(Document(str(i), text) for i, text in enumerate(rows[column]) if text)
    return _checked(Corpus(documents, f"hub data set {name}", licence))


def _checked(corpus: Corpus) -> Corpus:
    if not any(document.text.strip() for document in corpus):
        raise BadInput(f"The text of {corpus.source} is empty.")
    return corpus
