"""`python -m benchmarks [SUITE ...]`: every ratio in one table, and in one JSON file.

The file keeps what other suites left in it.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from time import perf_counter

import pandas as pd
from rich.console import Console
from rich.table import Table

import attnlimit
from benchmarks.row import Row

PROJECT = Path(__file__).resolve().parents[1]
sys.path.append(str(PROJECT / "studies"))
from tables import write_fragment  # noqa: E402

TABLES = PROJECT / "docs" / "tables"
SUITES = ("startup", "theory", "montecarlo", "models", "output", "sparse", "scale", "decoding")


def main() -> int:
    """Run the suites asked for; the exit code says whether every target was met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "suites", nargs="*", choices=[*SUITES, []], metavar=f"{{{','.join(SUITES)}}}"
    )
    parser.add_argument("--json", type=Path, default=Path("report/bench.json"), help="Where to.")
    given = parser.parse_args()
    result: list[tuple[str, Row]] = []
    for suite in given.suites or SUITES:
        print(f"{suite} ...", file=sys.stderr, flush=True)
        start = perf_counter()
        module = import_module(f"benchmarks.{suite}")
        rows: list[Row] = module.run()
        write(suite, str(module.__doc__), rows, perf_counter() - start, given.json)
        write_table(suite, given.json)
        result += [(suite, row) for row in rows]
    show(result)
    return 0 if all(row.ratio >= row.target for _, row in result) else 1


def write(suite: str, question: str, rows: list[Row], seconds: float, path: Path) -> None:
    """Write a suite's rows, and what they were measured on, beside the other suites there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    suites = json.loads(path.read_text()) if path.exists() else {}
    results = [{**vars(row), "ratio": row.ratio, "met": row.ratio >= row.target} for row in rows]
    suites.setdefault("suites", {})[suite] = {
        "title": question.splitlines()[0],
        "version": attnlimit.__version__,
        "machine": platform.machine(),
        "python": platform.python_version(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": seconds,
        "tables": {"ratios": results},
    }
    path.write_text(json.dumps({"suites": suites["suites"]}, indent=1) + "\n")


def write_table(suite: str, path: Path) -> None:
    """Write a suite's table for the documentation."""
    source = json.loads(path.read_text())["suites"][suite]
    rows = [
        {
            "what": row["what"],
            "measured": f"{row['measured']:.3g} {row['unit']}",
            "baseline": f"{row['baseline']:.3g} {row['unit']}",
            "ratio": row["ratio"],
            "target": row["target"],
        }
        for row in source["tables"]["ratios"]
    ]
    source["command"] = f"python -m benchmarks {suite}"
    write_fragment(TABLES, f"{suite}-ratios", pd.DataFrame(rows), source)


def show(found: list[tuple[str, Row]]) -> None:
    """Print the rows as one table."""
    table = Table(header_style="bold")
    for name in ("suite", "what", "measured", "baseline", "ratio", "target", "met"):
        right = name in ("measured", "baseline", "ratio", "target")
        table.add_column(name, justify="right" if right else "left")
    for suite, row in found:
        numbers = (f"{row.measured:.3g} {row.unit}", f"{row.baseline:.3g} {row.unit}")
        met = "yes" if row.ratio >= row.target else "no"
        table.add_row(suite, row.what, *numbers, f"{row.ratio:.3g}", f"{row.target:.3g}", met)
    console = Console(highlight=False)
    (console if console.is_terminal else Console(highlight=False, width=160)).print(table)


if __name__ == "__main__":
    sys.exit(main())
