"""Which experiments are there? Those of the papers and ours by name, a user's own by its file."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from attnlimit.errors import BadInput
from attnlimit.reproduce.experiment import Experiment
from attnlimit.runs.experiment import find

NAMES = (
    "gaussian sphere uniform hardmax clt heavy heads bert window longdoc "
    "downstream downstream-by-horizon tsne output-error model-baselines "
    "model-complexity held-out eviction needle critical-temperature row-temperature "
    "sparse-curves sparse-alignment sparse-capacity sparse-oracle sparse-separation "
    "sparse-phase sparse-length sparse-check sparse-digits sparse-documents sparse-benchmarks "
    "sparse-enough sparse-gaussian"
)
EXPERIMENTS: dict[str, str] = {
    name: "attnlimit.reproduce." + name.replace("sparse-", "sparse.").replace("-", "_")
    for name in NAMES.split()
}
"""The module, imported only when asked for, whose EXPERIMENT has the name."""


def load(name: str) -> Experiment:
    """Return the experiment called `name`, or the one in the file of that name."""
    if name.endswith(".py"):
        return _own(Path(name))
    if name not in EXPERIMENTS:
        close = get_close_matches(name, EXPERIMENTS, n=1)
        there = f"did you mean {close[0]}?" if close else f"there are {', '.join(EXPERIMENTS)}."
        raise BadInput(
            f"There is no experiment {name!r}; {there} Your own is named by the path of its .py "
            "file."
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
