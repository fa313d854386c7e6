"""Does every prediction hold? One line for each quantity of each experiment: docs/evidence.md."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.reproduce import load
from attnlimit.reproduce.compare import with_z
from attnlimit.reproduce.registry import EXPERIMENTS
from evidence.blocks import EVERY, table
from evidence.runs import COMMAND, Run, Runs


def chosen(runs: Runs) -> list[Run]:
    """Return one run for each experiment, that of the paper's sizes if there is one."""
    by_name = {
        run.name: run for run in sorted(runs.values(), key=lambda run: "--paper" in run.asked)
    }
    return [by_name[name] for name in EXPERIMENTS if name in by_name]


def compared(run: Run) -> pd.DataFrame:
    """Return the rows that have a prediction and a measurement, with their z."""
    both = run.result.experiment.compared(run.config, run.curves)
    return pd.DataFrame() if both is None else with_z(both[both["measured"] != 0])


def line(name: str, quantity: str, rows: pd.DataFrame) -> dict[str, object]:
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


@table(EVERY)
def predicted_and_measured(runs: Runs) -> pd.DataFrame:
    """Every quantity that is predicted."""
    lines = []
    for run in chosen(runs):
        both = compared(run)
        if both.empty:
            continue
        named = [column for column in ("statistic", "quantity") if column in both]
        kinds = both[named[0]] if named else pd.Series("error", index=both.index)
        lines += [line(run.name, str(kind), rows) for kind, rows in both.groupby(kinds)]
    return pd.DataFrame(lines)


@table(EVERY)
def all_runs(runs: Runs) -> pd.DataFrame:
    """Where the numbers of all pages come from."""
    lines = []
    for name in EXPERIMENTS:
        of_it = sorted(
            (run for run in runs.values() if run.name == name), key=lambda run: run.asked
        )
        for run in of_it:
            lines.append([f"`{COMMAND}{run.asked}`", run.made, f"{run.seconds:.0f}"])
        if not of_it:
            lines.append([f"`{COMMAND}{name}`", "no run yet", ""])
    titles = [load(line[0].strip("`").split()[2]).title for line in lines]
    shown = pd.DataFrame(lines, columns=["command", "version, day", "seconds"])
    shown.insert(0, "what", titles)
    return shown
