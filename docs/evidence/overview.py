"""Does every prediction hold? One line for each quantity of each experiment: docs/evidence.md.

A line stays as it was where there is no run to make it of.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.reproduce import load
from attnlimit.reproduce.compare import with_z
from attnlimit.reproduce.registry import EXPERIMENTS
from evidence.blocks import EVERY, MAKERS, table
from evidence.runs import COMMAND, Run, Runs, largest, typed
from evidence.studies import COMMANDS


def chosen(runs: Runs) -> list[Run]:
    """Return one run for each experiment, that of the paper's sizes if there is one."""
    experiments = [run for run in runs.values() if isinstance(run, Run)]
    by_name = {run.name: run for run in sorted(experiments, key=lambda run: "--paper" in run.asked)}
    return [by_name[name] for name in EXPERIMENTS if name in by_name]


def compared(run: Run) -> pd.DataFrame:
    """Return the rows that have a prediction and a drawn measurement, with their z."""
    both = run.result.experiment.compared(run.config, run.curves)
    if both is None:
        return pd.DataFrame()
    return with_z(both[both["measured"] != 0]).dropna(subset="z")


def line(name: str, quantity: str, rows: pd.DataFrame) -> dict[str, object]:
    """One line of the table."""
    ratio = (rows["predicted"] / rows["measured"]).astype(float)
    low, middle, high = np.quantile(ratio, [0.05, 0.5, 0.95])
    z = rows["z"]
    return {
        "experiment": f"`{name}`",
        "quantity": quantity,
        "points": len(rows),
        "predicted / measured": f"{middle:.3f} ({low:.3f} to {high:.3f})",
        "standard error": f"{(rows['stderr'] / rows['measured'].abs()).median():.2%}",
        "rms z": f"{np.sqrt((z**2).mean()):.2f}",
        "beyond 3": int((z.abs() > 3).sum()),
    }


@table(EVERY)
def predicted_and_measured(runs: Runs, before: pd.DataFrame) -> pd.DataFrame:
    """Every quantity that is predicted."""
    here = {run.name: run for run in chosen(runs)}
    lines = []
    for name in EXPERIMENTS:
        if name not in here:
            lines += stayed(before, "experiment", f"`{name}`")
            continue
        both = compared(here[name])
        if both.empty:
            continue
        named = [column for column in ("statistic", "quantity") if column in both]
        kinds = both[named[0]] if named else pd.Series("error", index=both.index)
        lines += [line(name, str(kind), rows) for kind, rows in both.groupby(kinds)]
    return pd.DataFrame(lines)


@table(EVERY)
def all_runs(runs: Runs, before: pd.DataFrame) -> pd.DataFrame:
    """Where the numbers of all pages come from: every run here, and those that a table asks for."""
    asked = {one for maker in MAKERS.values() for one in maker.commands}
    told = [one.strip("`").removeprefix(COMMAND) for one in before.get("command", [])]
    lines: list[dict[str, object]] = []
    for name in EXPERIMENTS:
        here = {one for one, run in runs.items() if run.name == name}
        if largest(name) in here:
            here -= {name} - {*asked, largest(name)}
        away = {one for one in told if one.split()[0] == name and (not here or one in asked)}
        wanted = {one for one in asked if one.split()[0] == name}
        for one in sorted(here | away | wanted) or [largest(name)]:
            lines.append(made(runs, before, one, load(name).title))
    studies = sorted(one for one in asked if one.startswith(COMMANDS))
    return pd.DataFrame(lines + [made(runs, before, one) for one in studies])


def made(runs: Runs, before: pd.DataFrame, asked: str, title: str = "") -> dict[str, object]:
    """The line of a command: that of its run, or as it was."""
    command = f"`{typed(asked)}`"
    if run := runs.get(asked):
        said = {"version, day": run.made, "seconds": f"{run.seconds:.0f}"}
        return {"what": run.title, "command": command, **said}
    none = {"what": title, "command": command, "version, day": "no run yet", "seconds": ""}
    return next(iter(stayed(before, "command", command)), none)


def stayed(before: pd.DataFrame, column: str, name: str) -> list[dict[str, object]]:
    """Return the lines of the table as it was that have a name in a column."""
    return [] if before.empty else before[before[column] == name].to_dict("records")
