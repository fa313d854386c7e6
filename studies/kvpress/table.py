"""Our eviction and budgets beside kvpress's presses.

Run in the project's environment after ours.py and presses.py, on the folder that they wrote; what
they found is kept as the study `make kvpress`.
"""

import argparse
import json
from pathlib import Path
from time import time

import numpy as np
import pandas as pd

from tables import write_tables

OURS = ("weighted", "weighted, sized by output")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    ours = pd.DataFrame(json.loads((folder / "ours.json").read_text()))
    theirs = pd.DataFrame(json.loads((folder / "presses.json").read_text()))
    presses = pd.concat([ours[ours["method"].isin(OURS)], theirs])
    seconds = time() - (folder / "texts.json").stat().st_mtime  # what ours.py writes first
    results = {
        "presses-compared": presses,
        "perplexity-after-a-cut": same_rules(folder, ours, theirs),
    }
    write_tables(results, command="make kvpress", seconds=seconds)


def same_rules(folder, ours, theirs):
    """For every rule that both have, the share of the kept keys that both keep, and both KLs."""
    kept = [np.load(folder / f"{name}-kept.npz") for name in ("ours", "presses")]
    both = ours.merge(theirs, on=["text", "method", "keep"], suffixes=("", "_kvpress"))
    both = both[both["method"] != "full"]
    names = both["text"] + "|" + both["method"] + "|" + both["keep"].astype(str)
    masks = [[file[name] for name in names] for file in kept]
    common = [(a & b).sum() / b.sum() for a, b in zip(*masks, strict=True)]
    columns = ["text", "method", "keep", "kl", "kl_kvpress"]
    return both[columns].assign(same=common)


if __name__ == "__main__":
    main()
