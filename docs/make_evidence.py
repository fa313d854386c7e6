"""Does every prediction hold? One table from finished run folders, written into docs/evidence.md.

python docs/make_evidence.py RUNS
"""

from __future__ import annotations

import sys
import textwrap
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from attnlimit.reproduce import Result, load
from attnlimit.reproduce.compare import with_z
from attnlimit.reproduce.experiment import Experiment
from attnlimit.reproduce.registry import EXPERIMENTS
from attnlimit.runs import RunFolder

PAGE = Path(__file__).with_name("evidence.md")
HEAD = """# Evidence

Every quantity that the library predicts, beside what was measured. This page is written from run
folders by `make evidence`; no number on it is typed by hand. A point is a setting (an n, a head, a
scheme). `predicted / measured` is the median over points, with the range of the middle nine tenths;
`rms z` is the root mean square distance in combined errors, which is 1 where errors are what they
claim; rows with points beyond 3 are where to look first.

"""


def compared(folder: RunFolder, experiment: Experiment) -> pd.DataFrame:
    """The rows of a run that have a prediction and a measurement, with their z."""
    config = folder.record()["config"]
    both = experiment.compared(config, experiment.weighed(config, folder.table()))
    return pd.DataFrame() if both is None else with_z(both[both["measured"] != 0])


def row(name: str, quantity: str, rows: pd.DataFrame) -> dict[str, object]:
    """One line of the table."""
    ratio = (rows["predicted"] / rows["measured"]).astype(float)
    low, middle, high = np.quantile(ratio, [0.05, 0.5, 0.95])
    z = rows["z"].dropna()
    return {
        "experiment": f"`{name}`",
        "quantity": quantity,
        "points": len(rows),
        "predicted / measured": f"{middle:.3f} ({low:.3f} to {high:.3f})",
        "standard error": f"{(rows['stderr'] / rows['measured'].abs()).median():.2%}",
        "rms z": f"{np.sqrt((z**2).mean()):.2f}" if len(z) else "nothing random",
        "beyond 3": int((z.abs() > 3).sum()),
    }


def fill_sentences(page: str) -> str:
    """Wrap what is not a table."""
    fill = partial(textwrap.fill, width=116, break_on_hyphens=False)
    return "\n".join(one if one.startswith("|") else fill(one) for one in page.split("\n"))


def main(root: Path) -> None:
    """Read every run folder below `root` and write the page."""
    found: dict[str, RunFolder] = {}
    for record in sorted(root.rglob("run.json")):
        folder = RunFolder(record.parent)
        name = folder.record()["experiment"]
        if name in EXPERIMENTS and (record.parent / "report.html").exists():
            found[name] = folder
    lines, sources = [], []
    for name in (one for one in EXPERIMENTS if one in found):
        folder, experiment = found[name], load(name)
        record = folder.record()
        command = Result(experiment, record["config"], folder.table()).command
        day, version = record["created"][:10], record["version"]
        sources.append(f"| {experiment.title} | `{command}` | {version}, {day} |")
        both = compared(folder, experiment)
        if both.empty:
            continue
        named = [column for column in ("statistic", "quantity") if column in both]
        kinds = both[named[0]] if named else pd.Series("error", index=both.index)
        lines += [row(name, str(kind), rows) for kind, rows in both.groupby(kinds)]
    shown = pd.DataFrame(lines)
    cells = ["| " + " | ".join(map(str, line)) + " |" for line in shown.to_numpy()]
    titles = ["| " + " | ".join(shown.columns) + " |", "|" + "---|" * shown.shape[1]]
    runs = ["| what | command | version, day |", "|---|---|---|", *sources]
    missing = [f"`{name}`" for name in EXPERIMENTS if name not in found]
    if missing:
        runs += ["", "No run of this version yet: " + ", ".join(missing) + "."]
    page = HEAD + "\n".join([*titles, *cells, "", "## The runs", "", *runs]) + "\n"
    PAGE.write_text(fill_sentences(page))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
