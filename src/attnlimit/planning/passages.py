"""Passages of texts that plans are made on, and captures of them or of own arrays in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.files import digest
from attnlimit.models.captures import Capture, from_arrays, open_capture
from attnlimit.models.loading import LoadedModel, file_hash
from attnlimit.models.store import MANIFEST, as_written, capture_file, inside, is_address
from attnlimit.models.texts import read_corpus, split_tokens

MIN_TOKENS = 8
MAX_PARTS = 1 << 16


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
        return cls(planned, next((one for one in every if one.part == count), None))

    @property
    def tokens(self) -> int:
        """Tokens of a passage."""
        return len(self.planned[0].ids)

    @property
    def ids(self) -> list[list[int]]:
        """Token ids of the passages to plan on."""
        return [list(passage.ids) for passage in self.planned]

    def measured_on(self) -> list[int]:
        """Token ids of the unseen passage, or of the first."""
        return list((self.unseen or self.planned[0]).ids)


@dataclass(frozen=True)
class StoredCaptures:
    """Captures that are files: a capture's folder, or three numpy files.

    Workers open them anywhere, so paths are absolute; a hash of hashes tells whether they changed.
    """

    paths: tuple[str, ...]
    sha256: str
    causal: bool = True  # of own tensors; a folder states it itself

    @classmethod
    def at(cls, paths: Sequence[str | Path], causal: bool = True) -> StoredCaptures:
        """Return what is stored at `paths`, with its hash as it is now."""
        where = tuple(as_written(path) for path in paths)
        return cls(where, _digest(where), causal)

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> StoredCaptures:
        """Return it from the JSON of a configuration."""
        return cls(**{**given, "paths": tuple(given["paths"])})

    def captures(self) -> tuple[Capture, ...]:
        """Open every passage; raise if the files have changed."""
        if not is_address(self.paths[0]):  # addresses are checked once in a process
            self.check()
        return _opened(self)

    def check(self) -> None:
        """Raise if the files have changed."""
        if _digest(self.paths) != self.sha256:
            raise BadInput(
                f"The captures in {self.paths[0]} have changed since the run began; begin a new "
                "run with them."
            )


@lru_cache(maxsize=2)
def _opened(stored: StoredCaptures) -> tuple[Capture, ...]:
    stored.check()
    if not _is_folder(stored.paths):
        return (read_arrays(stored.paths, causal=stored.causal),)
    captures = open_passages(stored.paths[0])
    if len({len(one) for one in captures}) > 1:
        raise BadInput(
            f"The captures in {stored.paths[0]} are of passages of different lengths; capture "
            "passages of equal length."
        )
    return captures


def _is_folder(paths: tuple[str, ...]) -> bool:
    return len(paths) == 1 and not paths[0].endswith(".npy")


def _digest(paths: tuple[str, ...]) -> str:
    """SHA-256 of own files, or of a folder's manifests, which have those of all else."""
    files = list(map(Path, paths))
    if is_address(paths[0]):
        count = len(open_passages(paths[0]))
        parts = (inside(paths[0], f"part-{part}") for part in range(1, count))
        files = [capture_file(folder, MANIFEST) for folder in (paths[0], *parts)]
    elif _is_folder(paths):
        files = [files[0] / MANIFEST, *sorted(files[0].glob(f"part-*/{MANIFEST}"))]
    return digest("".join(file_hash(file) for file in files if file.is_file()).encode())


def part_folder(folder: Path, part: int) -> Path:
    """Folder of a passage: the first is in the capture's own folder, the others are inside it."""
    return folder if part == 0 else folder / f"part-{part}"


def open_passages(folder: str | Path) -> tuple[Capture, ...]:
    """Open the capture of every passage in a folder that `attnlimit capture` wrote."""
    first = open_capture(folder)
    parts = first.source.get("parts", 1)
    if type(parts) is not int or not 1 <= parts <= MAX_PARTS:
        raise BadInput(f"The capture in {folder} states {str(parts)[:40]!r} parts.")
    return (first, *(open_capture(inside(folder, f"part-{part}")) for part in range(1, parts)))


def passage_of(capture: Capture, folder: str | Path) -> Passage:
    """Return the passage of text that a stored capture is of."""
    stated = capture.source.get("passage")
    size = len(capture)
    if stated is None:
        return Passage(str(folder), str(folder), "your own", 0, tuple(range(size)))
    types = {"text": str, "source": str, "licence": str, "part": int, "ids": list}
    if not isinstance(stated, dict) or {key: type(v) for key, v in stated.items()} != types:
        raise BadInput(f"The capture in {folder} does not state its text; capture it again.")
    if len(stated["ids"]) != size or not all(type(number) is int for number in stated["ids"]):
        raise BadInput(f"The capture in {folder} has other tokens than its text; capture it again.")
    return Passage(**stated | {"ids": tuple(stated["ids"])})


def read_arrays(paths: Sequence[str | Path], *, causal: bool = True) -> Capture:
    """Make a capture of three files of numpy's, of queries, keys and values."""
    if len(paths) != 3:
        raise BadInput(
            f"Own tensors are three files, q.npy k.npy v.npy; got {len(paths)}. A folder that "
            "`attnlimit capture` wrote is given alone."
        )
    return from_arrays(*(_load(Path(path)) for path in paths), causal=causal)


def _load(path: Path) -> Any:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise BadInput(f"There is no file {path}; give the path of an existing one.") from None
    except (OSError, ValueError, EOFError, MemoryError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0].rstrip(".")
        raise BadInput(
            f"{path} is not an array that numpy.save wrote: {reason}; write it with numpy.save."
        ) from None
