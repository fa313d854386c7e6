"""What is a corpus? Documents with their titles, where they came from, and under which licence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from attnlimit.errors import BadInput
from attnlimit.files import digest

MOST_BYTES = 1 << 28
"""How much text is read at most: far more than any model takes, far less than fills a memory."""


@dataclass(frozen=True)
class Document:
    """One text with its title."""

    title: str
    text: str

    def __repr__(self) -> str:
        return f"Document({self.title!r}, {len(self.text)} characters)"


@dataclass(frozen=True)
class Corpus:
    """Documents, where they came from and under which licence."""

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
        """Return a document by its place or its title."""
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

    def only(self, title: str) -> Corpus:
        """Return the corpus of one document alone, found by its title."""
        return Corpus((self[title],), self.source, self.licence)

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
