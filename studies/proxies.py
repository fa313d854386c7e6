"""Threshold sampling by proxies of the scores.

Thresholds by proxies of the keys in all heads of SmolLM2: predicted, then run.
python studies/proxies.py
"""

from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

import attnlimit as al
from tables import write_tables

TOKENS, PROBES, DRAWS = 400, 3, 6


@dataclass(frozen=True)
class Rank(al.Proxy):
    """Keys by their `rank` first principal components."""

    rank: int

    def products(self, query: Tensor, key: Tensor) -> Tensor:
        centred = (key - key.mean(-2, keepdim=True)).float()  # the mean moves all products alike
        axes = torch.linalg.eigh(centred.transpose(-1, -2) @ centred).eigenvectors
        axes = axes[..., -min(self.rank, key.shape[-1]) :]
        approximate = (query.float() @ axes) @ (centred @ axes).transpose(-1, -2)
        return approximate.to(query.dtype)

    def bytes(self, width: int, number: float) -> float:
        return min(self.rank, width) * number


CHOSEN_BY = {  # (c, proxy, floor)
    "the scores": (48, None, 0.0),
    "4-bit keys": (48, "4bit", 0.1),
    "4-bit keys, no floor": (48, "4bit", 0.0),
    "4-bit keys, floor 0.3": (48, "4bit", 0.3),
    "3-bit keys": (48, "3bit", 0.1),
    "keys of rank 32 of 64": (48, Rank(32), 0.1),
    "2-bit keys": (48, "2bit", 0.1),
    "pages of 8": (96, "page8", 0.1),
}

if __name__ == "__main__":
    model = al.models.load("smollm2")
    ids = model.ids(al.models.wikipedia()["Anarchism"].text, TOKENS)
    samplers = {name: al.Threshold(*how) for name, how in CHOSEN_BY.items()}
    predictions = al.models.output_errors(model, ids, samplers, probes=PROBES)
    rows = []
    for name, entry in predictions.items():
        run = al.models.evaluate(model, ids, samplers[name], repeats=DRAWS)
        rows.append(
            {
                "chances": name,
                "c": samplers[name].c,
                "floor": samplers[name].floor,
                "keys": entry.mean_keys,
                "visible": entry.mean_visible,
                "predicted": entry.kl,
                "predicted_stderr": entry.stderr,
                "trusted": entry.trusted,
                "measured": run.kl,
                "measured_stderr": run.stderr["kl"],
            }
        )
        print(entry, run, sep="\n", flush=True)
    write_tables({"thresholds-by-proxies": pd.DataFrame(rows)})
