"""`attnlimit cluster`: how to start one, and whether its workers can do our work."""

from __future__ import annotations

from typing import Annotated, Any

import pandas as pd
import typer

from attnlimit.cli.options import AsJson
from attnlimit.cli.show import print_json, print_table, say
from attnlimit.cli.where import TlsOptions
from attnlimit.errors import BadInput
from attnlimit.models import load
from attnlimit.runs import DaskCluster
from attnlimit.runs.record import versions
from attnlimit.runs.task import difference

HOW = """\
Any Dask cluster will do, if its workers have the same versions as this machine.

This machine       attnlimit reproduce gaussian --cluster local --workers 2

By hand or SSH     pip install 'attnlimit[cluster]'     (everywhere, the same versions)
                   dask scheduler --port 8786           (on one machine, HOST)
                   dask worker tcp://HOST:8786 --nthreads 1 --nworkers auto
                                                        (on each of the others)
                   or all at once: dask ssh --nthreads 1 --nworkers 8 HOST HOST1 HOST2

Slurm              pip install dask-jobqueue, then in a Python that stays open:
                     from dask_jobqueue import SLURMCluster
                     cluster = SLURMCluster(cores=16, processes=16, memory="64GB",
                                            walltime="04:00:00")
                     cluster.scale(jobs=8); print(cluster.scheduler_address)

Then               attnlimit cluster tcp://HOST:8786 --model minilm     (checks the workers)
                   attnlimit reproduce gaussian --paper --cluster tcp://HOST:8786

One thread for each worker: a shard uses one core, and workers are how cores are used.
Start them with DASK_DISTRIBUTED__NANNY__PRE_SPAWN_ENVIRON='{"OMP_NUM_THREADS": 1}' in their
environment: by default Dask has freed memory returned at once, which slows attention down.
A scheduler runs any code it is sent: keep it on a private network, or use certificates:
--cluster tls://HOST:8786 with --tls-ca-file, --tls-cert and --tls-key.
Shards come back to the machine that runs the command, which alone writes the run folder: workers
need no shared disk, only the model's weights if there is a model."""


def cluster(
    address: Annotated[
        str | None, typer.Argument(help="A scheduler to check, or local; none: how to start one.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="A model that all workers must load.")] = None,
    json: AsJson = False,
    *,
    certificates: TlsOptions,
) -> None:
    """Say how to start a cluster; with an address, check versions and models of its workers."""
    if address is None:
        if json:
            print_json({"how": HOW.split("\n")})
        else:
            say(HOW)
        return
    with DaskCluster(address, tls=certificates.tls()) as entered:
        rows = check_workers(entered.client, model)
        where = entered.description
    good = bool(rows) and all(row["ready"] == "yes" for row in rows)
    if json:
        print_json({"cluster": where, "ready": good, "workers": rows})
    else:
        print_table(pd.DataFrame(rows), where)
    if not rows:
        raise BadInput(f"The scheduler at {address} has no workers yet; start some.")
    if not good:
        raise BadInput("Not every worker is ready; the last column says why.")


def check_workers(client: Any, model: str | None) -> list[dict[str, Any]]:
    """One row for each worker: its size, and what keeps it from doing our work."""
    expected = tuple(versions().items())
    workers = client.scheduler_info(n_workers=-1)["workers"]
    differences = client.run(difference, expected, on_error="return")
    weights, found = None, {}
    if model is not None:
        weights = weights_of(model)
        found = client.run(weights_of, model, on_error="return")
    rows = []
    for address, about in workers.items():
        trouble = ""
        other, theirs = differences.get(address), found.get(address, weights)
        if isinstance(other, BaseException):
            trouble = f"cannot run attnlimit: {other}"
        elif other:
            trouble = str(other)
        elif isinstance(theirs, BaseException):
            trouble = f"cannot load {model}: {theirs}"
        elif theirs != weights:
            trouble = f"has other weights of {model}"
        rows.append(
            {
                "worker": address,
                "threads": about["nthreads"],
                "memory GB": round(about["memory_limit"] / 1e9, 1),
                "ready": "no" if trouble else "yes",
                "why": trouble,
            }
        )
    return rows


def weights_of(model: str) -> str:
    """SHA-256 of a model's weights as this process sees them."""
    return load(model).weights
