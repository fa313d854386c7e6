"""Where does text come from? Wikipedia articles, a file, a folder, standard input, a data set."""

from __future__ import annotations

import bz2
import html
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from attnlimit.errors import BadInput, MissingExtra
from attnlimit.files import digest
from attnlimit.models.load.bundled import packaged

ARTICLES = "test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
TEXT_SUFFIXES = (".txt", ".md", ".rst", ".text")
MOST_BYTES = 1 << 28
"""How much text is read at most: far more than any model takes, far less than fills a memory."""
DATASET = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?", re.ASCII)


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
        return digest("".join(f"{d.title}\0{d.text}\0" for d in self.documents).encode())

    def record(self) -> dict[str, str | int]:
        """Source, licence, size and hash, for a run's configuration."""
        named = {"source": self.source, "licence": self.licence}
        return {**named, "documents": len(self), "sha256": self.sha256}


def read_corpus(source: str) -> Corpus:
    """Read text from `source`.

    Parameters
    ----------
    source : str
        "wikipedia" for all bundled articles, "wikipedia:TITLE" for one; "-" for standard input; a
        text file; a folder of text files; "hub:NAME" for a Hugging Face data set when online.
    """
    if source == "-":
        text = _text(_standard_input(), "standard input", MOST_BYTES)
        return _checked([Document("stdin", text)], "standard input")
    if source == "wikipedia":
        return wikipedia()
    if source.startswith("wikipedia:"):
        articles = wikipedia()
        title = source.removeprefix("wikipedia:")
        return Corpus((articles[title],), articles.source, articles.licence)
    if source.startswith("hub:"):
        return _dataset(source.removeprefix("hub:"))
    try:
        path = Path(source).expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError):  # a name too long, no such user's home
        is_folder = is_file = False
    if is_folder:
        return _folder(path)
    if is_file:
        return _checked([_document(path, MOST_BYTES)[0]], f"file {path}")
    shown = repr(source if len(source) <= 200 else f"{source[:200]}...")
    raise BadInput(
        f"There is no text at {shown}: give a file, a folder, - for standard input, "
        "wikipedia, wikipedia:TITLE or hub:NAME."
    )


@lru_cache(maxsize=1)
def wikipedia() -> Corpus:
    """Return the 107 English Wikipedia articles that come with gensim."""
    if find_spec("gensim") is None:
        raise MissingExtra(
            "The Wikipedia articles are inside gensim: run `pip install 'attnlimit[corpora]'`."
        )
    path = packaged("gensim", ARTICLES)
    if path is None:
        raise MissingExtra(
            "This gensim has no Wikipedia articles in it; run `pip install gensim==4.4.0`."
        )
    from gensim.corpora.wikicorpus import extract_pages, filter_wiki

    documents = []
    with bz2.open(path) as file:
        for title, markup, _ in extract_pages(Bounded(file, path), filter_namespaces=("0",)):
            if markup.lstrip().lower().startswith("#redirect"):
                continue
            text = _plain(filter_wiki(markup))
            if len(text.split()) >= 50:
                documents.append(Document(title, text))
    source, licence = "English Wikipedia, articles inside gensim", "CC BY-SA 3.0 and GFDL"
    return Corpus(tuple(documents), source, licence)


class Bounded(io.RawIOBase):
    """A compressed file that stops unpacking after `MOST_BYTES`, however little it was packed."""

    def __init__(self, file: bz2.BZ2File, path: Path) -> None:
        self.file, self.path, self.left = file, path, MOST_BYTES

    def readable(self) -> bool:
        """Say that this is for reading."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read `size` bytes, or what is left."""
        try:
            content = self.file.read(self.left + 1 if size < 0 else min(size, self.left + 1))
        except (OSError, EOFError) as error:
            raise BadInput(f"{self.path} is damaged: {error}.") from None
        self.left -= len(content)
        if self.left < 0:
            raise BadInput(f"{self.path} unpacks to more than {MOST_BYTES >> 20} MB of text.")
        return content


def _plain(text: str) -> str:
    """Drop what is left of wiki markup: headings' equal signs, quotes, list marks, blank lines."""
    text = html.unescape(text)
    text = re.sub(r"'{2,}", "", text)
    text = re.sub(r"^\s*=+\s*(.*?)\s*=+\s*$", r"\1.", text, flags=re.MULTILINE)
    text = re.sub(r"^[*#:;|!{}\-]+.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"[ \t]+", " ", text)
    return re.sub(r"\s*\n\s*", "\n", text).strip()


def _folder(path: Path) -> Corpus:
    root = path.resolve()
    try:
        files = sorted(f for f in path.rglob("*") if f.suffix in TEXT_SUFFIXES and f.is_file())
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}.") from None
    if not files:
        raise BadInput(f"{path} has no text files ({', '.join(TEXT_SUFFIXES)}) in it.")
    documents = []
    left = MOST_BYTES
    for file in files:
        if root not in file.resolve().parents:
            raise BadInput(f"{file} is a link that leads out of {path}; put the file itself there.")
        document, size = _document(file, left)
        documents.append(document)
        left -= size
    return _checked(documents, f"folder {path}")


def _document(path: Path, most: int) -> tuple[Document, int]:
    """Read a file of at most `most` bytes; return it with its size."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)  # its size is not to be trusted: /proc says zero
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}.") from None
    return Document(path.stem, _text(content, str(path), most)), len(content)


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise BadInput("There is no standard input here; give a file.")
    buffer = getattr(sys.stdin, "buffer", None)
    if buffer is None:  # a stand-in that has text only
        return sys.stdin.read(MOST_BYTES + 1).encode("utf-8", "surrogatepass")
    return bytes(buffer.read(MOST_BYTES + 1))


def _text(content: bytes, name: str, most: int) -> str:
    if len(content) > most:
        raise BadInput(f"{name} goes beyond {MOST_BYTES >> 20} MB of text; give a part of it.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{name} is not text in UTF-8; convert it first.") from None
    if "\0" in text:
        raise BadInput(f"{name} has zero bytes in it, so it is not text in UTF-8.")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _dataset(name: str) -> Corpus:
    if not DATASET.fullmatch(name):  # the library would take a path for a folder of data
        raise BadInput(f"{name[:200]!r} is not the name of a data set on the hub.")
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
    documents = [Document(str(i), text) for i, text in enumerate(rows[column]) if text]
    return _checked(documents, f"hub data set {name}", licence)


def _checked(documents: list[Document], source: str, licence: str = "user's") -> Corpus:
    if not any(document.text.strip() for document in documents):
        raise BadInput(f"The text of {source} is empty.")
    return Corpus(tuple(documents), source, licence)
