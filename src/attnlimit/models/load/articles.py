"""Which articles come with an installed package? English Wikipedia's, inside gensim."""

from __future__ import annotations

import bz2
import html
import io
import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from attnlimit.errors import BadInput, MissingExtra
from attnlimit.models.load.bundled import packaged
from attnlimit.models.load.corpus import MOST_BYTES, Corpus, Document

ARTICLES = "test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"


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
