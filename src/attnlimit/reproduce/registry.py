"""Which experiments are there? Those of the papers and ours by name, a user's own by its file."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from attnlimit.errors import BadInput
from attnlimit.reproduce.experiment import Experiment
from attnlimit.runs.experiment import find

# name -> module whose EXPERIMENT it is; imported only when asked for.
EXPERIMENTS: dict[str, str] = {
    "gaussian": "attnlimit.reproduce.gaussian",
    "sphere": "attnlimit.reproduce.sphere",
    "uniform": "attnlimit.reproduce.uniform",
    "hardmax": "attnlimit.reproduce.hardmax",
    "clt": "attnlimit.reproduce.clt",
    "heavy": "attnlimit.reproduce.heavy",
    "heads": "attnlimit.reproduce.heads",
    "bert": "attnlimit.reproduce.bert",
    "window": "attnlimit.reproduce.window",
    "longdoc": "attnlimit.reproduce.longdoc",
    "downstream": "attnlimit.reproduce.downstream",
    "downstream-by-horizon": "attnlimit.reproduce.downstream_by_horizon",
    "tsne": "attnlimit.reproduce.tsne",
    "sparse-curves": "attnlimit.reproduce.sparse.curves",
    "sparse-alignment": "attnlimit.reproduce.sparse.alignment",
    "sparse-capacity": "attnlimit.reproduce.sparse.capacity",
    "sparse-oracle": "attnlimit.reproduce.sparse.oracle",
    "sparse-separation": "attnlimit.reproduce.sparse.separation",
    "sparse-phase": "attnlimit.reproduce.sparse.phase",
    "sparse-length": "attnlimit.reproduce.sparse.length",
    "sparse-check": "attnlimit.reproduce.sparse.check",
    "sparse-digits": "attnlimit.reproduce.sparse.digits",
    "sparse-documents": "attnlimit.reproduce.sparse.documents",
}


def load(name: str) -> Experiment:
    """Return the experiment called `name`, or the one in the file of that name."""
    if name.endswith(".py"):
        return _own(Path(name))
    if name not in EXPERIMENTS:
        raise BadInput(
            f"There is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}, and your own "
            "by the path of its .py file."
        )
    experiment = import_module(EXPERIMENTS[name]).EXPERIMENT
    assert isinstance(experiment, Experiment)
    return experiment


def _own(file: Path) -> Experiment:
    if not file.is_file():
        raise BadInput(f"There is no file {file}.")
    try:
        found = find(f"{file.resolve()}:EXPERIMENT")
    except Exception as error:  # anything may be written in a user's file
        raise BadInput(f"Cannot load {file}: {type(error).__name__}: {error}.") from error
    if not isinstance(found, Experiment) or found.name in EXPERIMENTS:
        raise BadInput(
            f"{file} must end with EXPERIMENT = YourClass(), a subclass of "
            "attnlimit.reproduce.Experiment whose name is not one of ours."
        )
    return found
