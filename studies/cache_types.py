"""Cache types of llama.cpp: KL by its own probabilities, and predicted here.

Reads what benchmarks/peers wrote to a folder (`make peers`); KL is of the next token, against a
cache of 16 bits, after the last 32 of the first 1,024 tokens of an address.
"""

import argparse
import json
from pathlib import Path

import pandas as pd

from attnlimit.models import load
from attnlimit.planning.error import output_errors
from attnlimit.planning.precision import Quantize
from attnlimit.planning.target import NextToken
from tables import write_tables

READ, COMPARED, PROBES = 1024, 32, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/peers"))
    folder = parser.parse_args().folder
    ids = json.loads((folder / "tokens.json").read_text())[:READ]
    table = losses(pd.read_json(folder / "llama_loss.json"), ids)
    write_tables({"cache-types": table}, command="make peers")


def losses(measured: pd.DataFrame, ids: list[int]) -> pd.DataFrame:
    """KL of each type, measured in llama.cpp and predicted here."""
    changes = {name: Quantize(name, name) for name in measured["cache"] if name != "f16"}
    target = NextToken(first=READ - COMPARED)
    predicted = output_errors(load("smollm2"), ids, changes, output=target, probes=PROBES)
    table = []
    for name, kl, stderr in measured.itertuples(index=False):
        if name in predicted:
            error = predicted[name]
            table.append(
                {
                    "cache": name,
                    "measured in llama.cpp": kl,
                    "measured in llama.cpp_stderr": stderr,
                    "predicted here": error.kl,
                    "predicted here_stderr": error.stderr,
                    "measured here": error.measured,
                }
            )
    return pd.DataFrame(table)


if __name__ == "__main__":
    main()
