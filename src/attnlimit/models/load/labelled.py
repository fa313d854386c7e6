"""Which labelled texts does the user bring? A CSV of texts and labels, or a folder for each."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from attnlimit.errors import BadInput
from attnlimit.files import digest
from attnlimit.models.load.corpora import read_corpus


@dataclass(frozen=True)
class Labelled:
    """Texts and their labels, in the order in which they were found."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def sha256(self) -> str:
        """Hash of texts and labels: what a run is keyed by."""
        both = zip(self.labels, self.texts, strict=True)
        return digest("".join(f"{label}\0{text}\0" for label, text in both).encode())


def read_labelled(source: str) -> Labelled:
    """Read labelled texts.

    Parameters
    ----------
    source : str
        A CSV file with the columns `text` and `label`, or a folder with one folder of text files
        for each label.
    """
    path = Path(source).expanduser()
    pairs = _from_folders(path) if path.is_dir() else _from_csv(path)
    pairs = [(text, label) for text, label in pairs if text.strip()]
    if len({label for _, label in pairs}) < 2:
        raise BadInput(f"{source} has fewer than two labels with texts; a classifier needs two.")
    texts, labels = zip(*pairs, strict=True)
    return Labelled(texts, labels)


def _from_folders(path: Path) -> list[tuple[str, str]]:
    folders = sorted(one for one in path.iterdir() if one.is_dir())
    if not folders:
        raise BadInput(f"{path} has no folders in it; put the texts of each label in one.")
    return [(one.text, label.name) for label in folders for one in read_corpus(str(label))]


def _from_csv(path: Path) -> list[tuple[str, str]]:
    rows = csv.DictReader(io.StringIO(read_corpus(str(path)).joined()))
    missing = {"text", "label"} - set(rows.fieldnames or ())
    if missing:
        raise BadInput(
            f"{path} has no column {' and no column '.join(sorted(missing))}; give a CSV file with "
            "the columns text and label, or a folder with a folder of text files for each label."
        )
    try:
        return [(row["text"] or "", row["label"] or "") for row in rows]
    except csv.Error as error:
        raise BadInput(f"{path} is not a CSV file: {error}.") from None
