"""Which numbers do pages show? Those of finished runs: marked blocks and pictures are made anew.

Folders that hold run folders and studies are read; blocks whose run is in none of them stay.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from evidence.blocks import EVERY, MAKERS, rewritten
from evidence.pictures import renewed
from evidence.runs import Runs, found_runs, largest, typed

from attnlimit.reproduce.registry import EXPERIMENTS

DOCS = Path(__file__).parent
for module in sorted((DOCS / "evidence").glob("*.py")):
    import_module(f"evidence.{module.stem}")


def pages() -> list[Path]:
    """Return every page that a person writes."""
    made = {"_build", "gallery", "api"}
    written = (page for page in DOCS.rglob("*.md") if not made & {*page.parts})
    return [DOCS.parent / "README.md", *sorted(written)]


def commands(runs: Runs) -> list[str]:
    """Return what has to be run beside `runs`: what tables ask for, and all other experiments."""
    asked = [one for maker in MAKERS.values() for one in maker.commands if one != EVERY]
    named = {one.split()[0] for one in asked}
    wanted = {*asked, *(largest(name) for name in EXPERIMENTS if name not in named)}
    return [typed(one) for one in sorted(wanted - {*runs})]


def main(runs: Runs) -> None:
    """Make blocks and pictures of all pages anew, and say which blocks wait for a run."""
    for page in pages():
        text = page.read_text()
        made, stayed = rewritten(text, runs)
        if made != text:
            page.write_text(made)
            print(f"{page.relative_to(DOCS.parent)} made anew")
        for one in stayed:
            print(f"{page.relative_to(DOCS.parent)}: {one}")
    for picture in renewed(DOCS / "images", runs):
        print(f"docs/images/{picture} drawn anew")


if __name__ == "__main__":
    asked = argparse.ArgumentParser(prog="python docs/make_evidence.py", description=__doc__)
    asked.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="A folder of runs.")
    asked.add_argument("--commands", action="store_true", help="Print what is still to be run.")
    given = asked.parse_args()
    found = found_runs(given.runs)
    if given.commands:
        print(*commands(found), sep="\n")
    else:
        main(found)
