"""Cache types of llama.cpp: KL by its own probabilities, predicted here, and times of a token.

Reads what benchmarks/peers wrote to a folder (`make peers`); KL is of the next token, against a
cache of 16 bits, after the last 64 of the first 1,024 tokens of an address.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

from attnlimit.models import load
from attnlimit.planning.error import output_errors
from attnlimit.planning.precision import Quantize
from attnlimit.planning.target import NextToken
from tables import format_number, write_tables

PROGRAMS = {"llama_cpp": "llama.cpp", "ik_llama": "ik_llama.cpp"}
READ, COMPARED, PROBES = 1024, 64, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/peers"))
    folder = parser.parse_args().folder
    times = {
        label: pd.DataFrame(json.loads((folder / f"{name}.json").read_text()))
        for name, label in PROGRAMS.items()
    }
    ids = json.loads((folder / "tokens.json").read_text())[:READ]
    tables = {
        "cache-types": losses(pd.read_json(folder / "llama_loss.json"), ids),
        "peer-times": by_length(times),
    }
    write_tables(tables, command="make peers")


def losses(measured: pd.DataFrame, ids: list[int]) -> pd.DataFrame:
    """KL of each type, measured in llama.cpp and predicted here."""
    types = [name for name in measured["cache"] if name.startswith("q")]
    changes = {name: Quantize(name, name) for name in types}
    target = NextToken(first=READ - COMPARED)
    predicted = output_errors(load("smollm2"), ids, changes, output=target, probes=PROBES)
    table = []
    for name, kl, stderr in measured[measured["cache"] != "f16"].itertuples(index=False):
        error = predicted.get(name)
        table.append(
            {
                "cache": name,
                "measured in llama.cpp": kl,
                "measured in llama.cpp_stderr": stderr,
                "predicted here": error.kl if error else 0.0,
                "predicted here_stderr": error.stderr if error else np.nan,
                "measured here": error.measured if error else 0.0,
            }
        )
    return pd.DataFrame(table)


def by_length(times: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Milliseconds of a token after so many others."""
    return pd.DataFrame(
        {"program": program, "cache": cache}
        | {f"{row['tokens']} tokens, ms": format_number(row["ms"]) for _, row in part.iterrows()}
        for program, rows in times.items()
        for cache, part in rows.groupby("cache", sort=False)
    )


if __name__ == "__main__":
    main()
