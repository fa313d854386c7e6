"""Cache types of llama.cpp: KL by its fork's own logits, predicted here, and times of a token.

Reads what benchmarks/peers wrote to a folder (`make peers`); KL is of the next token, against a
cache of 16 bits, over the first 1,024 tokens of an address.
"""

import argparse
import json
from pathlib import Path

import pandas as pd

from attnlimit.models import load
from attnlimit.planning.error import output_errors
from attnlimit.planning.precision import Quantize
from tables import format_number, write_tables

PROGRAMS = {"llama_cpp": "llama.cpp", "ik_llama": "ik_llama.cpp"}
COMPARED, PROBES = 1024, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/peers"))
    folder = parser.parse_args().folder
    times = {
        label: pd.DataFrame(json.loads((folder / f"{name}.json").read_text()))
        for name, label in PROGRAMS.items()
    }
    ids = json.loads((folder / "tokens.json").read_text())[:COMPARED]
    tables = {"cache-types": losses(times["ik_llama.cpp"], ids), "peer-times": by_length(times)}
    write_tables(tables, command="make peers")


def losses(rows: pd.DataFrame, ids: list[int]) -> pd.DataFrame:
    """KL of each type, measured in ik_llama.cpp and predicted here."""
    measured = rows.drop_duplicates("cache").set_index("cache")
    types = [name for name in measured.index if name != "f16"]
    changes = {name: Quantize(name, name) for name in types}
    predicted = output_errors(load("smollm2"), ids, changes, probes=PROBES)
    table = []
    for name in types:
        error, seen = predicted[name], measured.loc[name]
        table.append(
            {
                "cache": name,
                "measured in ik_llama.cpp": seen["kl"],
                "measured in ik_llama.cpp_stderr": seen["kl_stderr"],
                "predicted here": error.kl,
                "predicted here_stderr": error.stderr,
                "measured here": error.measured,
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
