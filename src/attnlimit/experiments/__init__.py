"""Every table and figure of the papers, by name; a new one is one file and one line here."""

from __future__ import annotations

from importlib import import_module

from attnlimit.errors import BadInput
from attnlimit.experiments.experiment import Config, Experiment, Shard

# name -> module whose EXPERIMENT it is; imported only when asked for.
EXPERIMENTS: dict[str, str] = {
    "gaussian": "attnlimit.experiments.gaussian",
    "sphere": "attnlimit.experiments.sphere",
    "uniform": "attnlimit.experiments.uniform",
    "hardmax": "attnlimit.experiments.hardmax",
    "clt": "attnlimit.experiments.clt",
    "heavy": "attnlimit.experiments.heavy",
    "model": "attnlimit.experiments.model",
    "heads": "attnlimit.experiments.heads",
    "bert": "attnlimit.experiments.bert",
    "window": "attnlimit.experiments.window",
    "longdoc": "attnlimit.experiments.longdoc",
    "downstream": "attnlimit.experiments.downstream",
    "downstream-by-horizon": "attnlimit.experiments.downstream_by_horizon",
    "tsne": "attnlimit.experiments.tsne",
    "sparse-curves": "attnlimit.sparse.experiments.curves",
    "sparse-alignment": "attnlimit.sparse.experiments.alignment",
    "sparse-capacity": "attnlimit.sparse.experiments.capacity",
    "sparse-separation": "attnlimit.sparse.experiments.separation",
    "sparse-phase": "attnlimit.sparse.experiments.phase",
    "sparse-length": "attnlimit.sparse.experiments.length",
    "sparse-check": "attnlimit.sparse.experiments.check",
    "sparse-digits": "attnlimit.sparse.experiments.digits",
    "sparse-documents": "attnlimit.sparse.experiments.documents",
}

__all__ = ["EXPERIMENTS", "Config", "Experiment", "Shard", "load"]


def load(name: str) -> Experiment:
    """Return the experiment called `name`."""
    if name not in EXPERIMENTS:
        raise BadInput(f"There is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}.")
    experiment = import_module(EXPERIMENTS[name]).EXPERIMENT
    assert isinstance(experiment, Experiment)
    return experiment
