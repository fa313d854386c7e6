"""Run experiments, studies and benchmarks, and write their tables to docs/tables.

Without names everything runs, which takes hours. An experiment is resumed where it stopped, and
its tables are written again from its run folder. A study or a suite of benchmarks writes its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.reproduce import EXPERIMENTS, Result, run
from attnlimit.reproduce.compare import with_z
from attnlimit.runs import ProcessPool, RunFolder

DOCS = Path(__file__).resolve().parent
PROJECT = DOCS.parent
sys.path.append(str(PROJECT / "studies"))
from tables import update_rows, write_fragment  # noqa: E402

TABLES = DOCS / "tables"
RUNS = PROJECT / "runs" / "evidence"
SUITES = ("startup", "theory", "montecarlo", "models", "output", "decoding", "sparse", "scale")
WORKERS = 2
PEERS = ("ruler", "cache_types")
"""Studies of what `make peers` installs and runs, left out without names."""


def commands() -> dict[str, Callable[[], None]]:
    """Return what can be run, by name."""
    names = {name: name for name in EXPERIMENTS}
    scripts = {}
    for file in sorted((PROJECT / "studies").glob("*.py")):
        text = file.read_text()
        if "\nEXPERIMENT = " in text:
            names[file.stem] = f"studies/{file.name}"
        elif "write_tables(" in text and file.stem != "tables":
            scripts[file.stem] = [f"studies/{file.name}"]
    experiments = {key: lambda name=name: experiment(name) for key, name in names.items()}
    scripts |= {f"benchmarks.{suite}": ["-m", "benchmarks", suite] for suite in SUITES}
    return experiments | {name: lambda a=a: script(a) for name, a in scripts.items()}


def script(arguments: list[str]) -> None:
    """Run a study or a suite of benchmarks, which writes its own tables."""
    subprocess.run([sys.executable, *arguments], cwd=PROJECT, check=True)


def experiment(name: str) -> None:
    """Run an experiment at the paper's sizes and write its tables and its picture."""
    with ProcessPool(WORKERS) as executor:
        result = run(name, paper=True, out=RUNS, executor=executor)
    assert result.folder is not None
    source, fragment = source_of(result), result.experiment.name
    if (TABLES / f"{fragment}.md").exists():  # a page includes it
        write_fragment(TABLES, fragment, result.table, source, " ".join(result.remarks))
    made = f"{source['version']}, {source['created'][:10]}"
    row = {"what": result.experiment.title, "command": f"`{source['command']}`"}
    row |= {"version, day": made, "seconds": round(source["seconds"])}
    update_rows(TABLES / "all-runs.md", pd.DataFrame([row]), "command")
    rows = summary(result)
    if len(rows):
        update_rows(TABLES / "predicted-and-measured.md", rows, "experiment")
    if fragment == "rivals":
        draw_rivals(result)
    if fragment == "model-baselines":
        draw_baselines(DOCS / "images" / "model_baselines.png")


def draw_rivals(result: Result) -> None:
    """Draw bytes read and bytes stored, each with every rule as a line."""
    from attnlimit.report.figures import draw

    for what, part in result.curves.groupby("what"):
        spec = result.experiment.figure(result.config, part)
        for file in draw(spec, RUNS, f"rivals-{what}"):
            if file.suffix == ".png":
                file.replace(DOCS / "images" / file.name)


def source_of(result: Result) -> dict[str, Any]:
    """Return the command, version, time and seconds of computation of a run with a folder."""
    folder = RunFolder(result.folder)
    record = {key: folder.record()[key] for key in ("version", "created")}
    command = result.command.removesuffix(" --seed 0")
    return record | {"command": command, "seconds": folder.seconds()}


def summary(result: Result) -> pd.DataFrame:
    """Return one row per quantity: ratios of predictions to measurements, and their errors."""
    compared = result.experiment.compared(result.config, result.with_errors)
    if compared is None:
        return pd.DataFrame()
    compared = with_z(compared[compared["measured"] != 0]).dropna(subset="z")
    named = [column for column in ("statistic", "quantity") if column in compared]
    kinds = compared[named[0]] if named else pd.Series("error", index=compared.index)
    rows = []
    for quantity, part in compared.groupby(kinds):
        ratio = part["predicted"] / part["measured"]
        low, high = ratio.quantile([0.05, 0.95])
        rows.append(
            {
                "experiment": f"`{result.experiment.name}`",
                "quantity": quantity,
                "points": len(part),
                "predicted / measured": f"{ratio.median():.3f} ({low:.3f} to {high:.3f})",
                "standard error": f"{(part['stderr'] / part['measured'].abs()).median():.2%}",
                "rms z": f"{np.sqrt((part['z'] ** 2).mean()):.2f}",
                "beyond 3": int((part["z"].abs() > 3).sum()),
            }
        )
    return pd.DataFrame(rows)


def draw_baselines(picture: Path) -> None:
    """Draw the table of rules at equal numbers of keys, for the pages and the report."""
    from matplotlib import pyplot

    rows = (TABLES / "model-baselines.md").read_text(encoding="utf-8").splitlines()[2:]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows if row[:1] == "|"]
    names = [name for name, *_ in cells]
    predicted, measured = (
        [float(row[column].split(" ")[0] or "nan") for row in cells] for column in (1, 2)
    )
    order = np.argsort(-np.fmin(predicted, measured), kind="stable")
    _, axis = pyplot.subplots(figsize=(7.2, 3.6), layout="constrained")
    axis.plot(np.array(measured)[order], range(len(order)), "o", color="#003B6F", label="measured")
    axis.plot(
        np.array(predicted)[order], range(len(order)), "|", ms=16, color="k", label="predicted"
    )
    for place, row in enumerate(order):
        value = predicted[row] if np.isnan(measured[row]) else measured[row]
        axis.annotate(
            f"{value:.2g}", (value, place), (9, -3), textcoords="offset points", fontsize=8
        )
    axis.set(xscale="log", xlim=(5e-4, 0.5), xlabel="KL divergence of the next token (nats)")
    axis.set_title("SmolLM2: loss when each query reads 64 of 1024 keys", loc="left")
    axis.set_yticks(range(len(order)), [names[row] for row in order])
    axis.grid(True, axis="x", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="lower left")
    pyplot.savefig(picture, dpi=170)


if __name__ == "__main__":
    available = commands()
    parser = argparse.ArgumentParser(prog="python docs/make_evidence.py", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(available))
    names = parser.parse_args().names or [name for name in available if name not in PEERS]
    unknown = [name for name in names if name not in available]
    if unknown:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(available)}")
    failed = []
    for name in names:
        print(f"{name} ...", flush=True)
        try:
            available[name]()
        except Exception as error:  # the other tables are still worth having
            failed.append(name)
            print(f"{name} failed: {error}", file=sys.stderr)
    sys.exit(f"Failed: {', '.join(failed)}." if failed else 0)
