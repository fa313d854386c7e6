"""How is a study tested? Loaded from its file, for studies are scripts beside the package."""

import importlib.util
import sys
from pathlib import Path

STUDIES = Path(__file__).parents[1] / "studies"


def study(name):
    """Return the module of a study, and let it find the module that keeps its tables."""
    if name != "kept":
        study("kept")
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, STUDIES / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
