"""Where is a capture's folder? On this machine, or at any address that fsspec knows.

A file of a remote folder is copied here once, held to its hash on the way, and mapped into memory
like one that was here all along: copies are named by their hash, so that every process of a
machine shares them, and a capture that has changed is copied anew.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from attnlimit.errors import AttnlimitError, BadInput
from attnlimit.files import MOST_JSON, Damaged, digest, write_atomically
from attnlimit.models.load.files import file_inside
from attnlimit.models.load.load import cache_folder
from attnlimit.models.store.manifest import NAME, LayerFile

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(:|/)")
"""How addresses begin: s3://bucket, simplecache::s3://bucket; a path made of one has one slash."""
HERE = "file://"
PIECE = 1 << 20


class Folder(ABC):
    """A capture's folder."""

    name: str  # as people know it

    @abstractmethod
    def manifest(self) -> Path:
        """Return a file of this machine that holds the manifest as it is now."""

    @abstractmethod
    def file(self, about: LayerFile) -> Path:
        """Return a file of this machine that holds a layer."""

    @abstractmethod
    def inside(self, name: str) -> Folder:
        """Return a folder in this one."""

    def none_here(self) -> BadInput:
        """Say that this is no capture's folder."""
        return BadInput(
            f"{self.name} holds no capture: it has no {NAME}; make one with `attnlimit capture` "
            "or cap.save(folder)."
        )


class LocalFolder(Folder):
    """A folder of this machine."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)

    def manifest(self) -> Path:
        """Return the manifest itself."""
        path = self.path / NAME
        if not path.is_file():
            raise self.none_here()
        return path

    def file(self, about: LayerFile) -> Path:
        """Return the file itself, which must be in the folder."""
        return file_inside(self.path, about.file)

    def inside(self, name: str) -> Folder:
        """Return a folder in this one."""
        return LocalFolder(self.path / name)


class RemoteFolder(Folder):
    """A folder at an address that fsspec opens."""

    def __init__(self, address: str) -> None:
        self.name = address.rstrip("/")

    def manifest(self) -> Path:
        """Copy the manifest."""
        content = b"".join(self._pieces(NAME, MOST_JSON))
        return self._kept(f"{digest(content)}.json", content)

    def file(self, about: LayerFile) -> Path:
        """Copy a layer's file, unless it is here already."""
        path = cache_folder() / "captures" / f"{about.sha256}.safetensors"
        if path.is_file() and path.stat().st_size == about.bytes:
            return path
        found = hashlib.sha256()

        def checked() -> Iterator[bytes]:
            for piece in self._pieces(about.file, about.bytes):
                found.update(piece)
                yield piece
            if found.hexdigest() != about.sha256:
                raise Damaged(
                    f"{self._address(about.file)} is damaged: it does not have its SHA-256; copy "
                    "the capture there again."
                )

        return self._kept(path.name, checked())

    def inside(self, name: str) -> Folder:
        """Return a folder in this one."""
        return RemoteFolder(self._address(name))

    def _address(self, name: str) -> str:
        """Address of what is in the folder: the first path of a chain like zip://a::s3://b."""
        chain = self.name.split("::")
        place = next((i for i, link in enumerate(chain) if "://" in link), -1)
        chain[place] = f"{chain[place].rstrip('/')}/{name}"
        return "::".join(chain)

    def _kept(self, name: str, content: bytes | Iterator[bytes]) -> Path:
        path = cache_folder() / "captures" / name
        try:
            write_atomically(path, content, durable=False)
        except OSError as error:
            raise AttnlimitError(
                f"Cannot copy {self.name} to {path.parent}: {error.strerror or error}; set "
                "ATTNLIMIT_CACHE to a folder that can be written and has room."
            ) from None
        return path

    def _pieces(self, name: str, most: int) -> Iterator[bytes]:
        """Read a file piece by piece, and not past what it should have."""
        try:
            import fsspec
        except ImportError:
            raise AttnlimitError(
                f"Reading {self.name} needs fsspec: run `pip install 'attnlimit[remote]'`, or copy "
                "the folder here."
            ) from None
        address = self._address(name)
        try:
            with fsspec.open(address, "rb") as file:
                while piece := file.read(min(PIECE, most + 1)):
                    most -= len(piece)
                    if most < 0:
                        raise Damaged(f"{address} is damaged: it is larger than it should be.")
                    yield piece
        except FileNotFoundError:
            if name == NAME:
                raise self.none_here() from None
            raise Damaged(f"{address} is missing; copy the capture there again.") from None
        except (AttnlimitError, GeneratorExit):
            raise
        except Exception as error:  # every file system fails in a way of its own
            reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
            raise BadInput(f"{address} cannot be read: {reason}.") from None


def is_address(folder: str | Path) -> bool:
    """Whether a capture's folder is elsewhere."""
    return ADDRESS.match(str(folder)) is not None and not str(folder).startswith(HERE)


def folder_at(folder: str | Path) -> Folder:
    """Return the folder that a user named, by its path or its address."""
    if isinstance(folder, str) and is_address(folder):
        return RemoteFolder(folder)
    return LocalFolder(local_path(folder))


def local_path(folder: str | Path) -> Path:
    """Return a path of this machine; an address is refused, for nothing is written elsewhere."""
    if is_address(folder):
        raise BadInput(
            f"{folder} is not a folder of this machine, where captures are written: name one, and "
            "copy it there."
        )
    return Path(str(folder).removeprefix(HERE)).expanduser()


def as_written(folder: str | Path) -> str:
    """Return a whole path, or an address as it is: what means the same to every worker."""
    return str(folder) if is_address(folder) else str(local_path(folder).resolve())
