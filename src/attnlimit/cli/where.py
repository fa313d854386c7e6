"""Where does a run go, and who does its work? Options that every running command shares."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.runs import DaskCluster, Executor, LocalProcesses, Tls


@dataclass(frozen=True)
class TlsOptions:
    """Certificates of a cluster, by the names of Dask's own commands."""

    tls_ca_file: Annotated[Path | None, Option(help="Authority of a tls:// cluster (PEM).")] = None
    tls_cert: Annotated[Path | None, Option(help="Certificate for a tls:// cluster (PEM).")] = None
    tls_key: Annotated[Path | None, Option(help="Key of that certificate (PEM).")] = None

    def tls(self) -> Tls:
        """Return the certificates that were given."""
        return Tls(self.tls_ca_file, self.tls_cert, self.tls_key)


@dataclass(frozen=True)
class _WhoOptions:
    """Who does the work."""

    workers: Annotated[int | None, Option(help="Processes; one for each core by default.")] = None
    cluster: Annotated[
        str | None, Option(help="local, or a Dask scheduler's tcp:// or tls:// address.")
    ] = None


@dataclass(frozen=True)
class WorkerOptions(TlsOptions, _WhoOptions):
    """Who does the work."""

    @property
    def near(self) -> bool:
        """Whether workers see the files of this machine."""
        return self.cluster in (None, "local")

    @property
    def count(self) -> int:
        """Processes of this machine."""
        return (
            os.cpu_count() or 1 if self.workers is None else checks.count(self.workers, "--workers")
        )

    def executor(self) -> Executor:
        """Return who does the work: processes of this machine, or a cluster."""
        if self.cluster is None:
            if self.tls() != Tls():
                raise BadInput("Certificates are for a cluster: add --cluster tls://host:port.")
            return LocalProcesses(self.count)
        if self.workers is not None and self.cluster != "local":
            raise BadInput(
                f"--workers starts processes here; the cluster {self.cluster} has its own workers."
            )
        workers = None if self.workers is None else self.count
        return DaskCluster(self.cluster, workers=workers, tls=self.tls())


@dataclass(frozen=True)
class _PlaceOptions:
    """Where a run goes."""

    seed: Annotated[int, Option(help="Seed of all random numbers.")] = 0
    out: Annotated[Path, Option(help="Folder that run folders go in.")] = Path("runs")


@dataclass(frozen=True)
class RunOptions(WorkerOptions, _PlaceOptions):
    """Where a run goes and who does its work."""
