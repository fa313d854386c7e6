"""Studies are scripts and experiments beside the package; pytest has their folder on its path."""

from pathlib import Path

from attnlimit.reproduce import EXPERIMENTS

STUDIES = Path(__file__).parents[1] / "studies"


def target(name):
    """Return what `run` takes for an experiment: a name of the papers', or the path of a study."""
    return name if name in EXPERIMENTS else str(STUDIES / f"{name.replace('-', '_')}.py")


def experiment_studies():
    """Return the names of all studies that are experiments."""
    files = (file for file in STUDIES.glob("*.py") if "\nEXPERIMENT = " in file.read_text())
    return {file.stem.replace("_", "-") for file in files}
