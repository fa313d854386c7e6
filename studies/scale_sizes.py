"""What does a head's budget cost at growing contexts? Seconds and memory, predicted and measured.

    python studies/scale_sizes.py

SmolLM2 on an article is captured to files. A causal model's first n tokens know nothing of those
after them, so every shorter context is in the one capture. Each budget is made in a process of its
own, whose memory is then its own. The last table holds budgets of a sample of queries against all
queries.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import process_time

import pandas as pd

import attnlimit as al
from attnlimit.budgets.schemes import errors_of
from attnlimit.budgets.search import fixed_tokens
from attnlimit.budgets.seen import Queries
from attnlimit.budgets.terms import Terms
from attnlimit.cost import Estimate, Job, Shape, measure_rates
from kept import keep

SIZES = (512, 1024, 2048, 4096)
HEADS = ((3, 1), (24, 7))
FEW = 16  # tokens of a head whose budget takes nothing: what libraries hold
SAMPLED, CONTEXT, LAYERS = 128, 2048, (3, 13, 24)


def shorter(folder: str, layer: int, head: int, tokens: int):
    whole = al.models.open_capture(folder)[layer, head]
    q, k, v = (one[:tokens].clone() for one in (whole.q, whole.k, whole.v))
    mask = replace(whole.mask, positions=whole.mask.positions[:tokens])
    return replace(whole, q=q, k=k, v=v, mask=mask)


def one(folder: str, layer: str, head: str, tokens: str) -> None:
    """Budget one head, and print its core-seconds and this process's peak megabytes."""
    al.budget(shorter(folder, int(layer), int(head), FEW))  # loads what is needed once
    start = process_time()
    al.budget(shorter(folder, int(layer), int(head), int(tokens)))
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    print(process_time() - start, peak / 1024)


def told(*given: object) -> list[float]:
    command = [sys.executable, __file__, *map(str, given)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [float(word) for word in said.split()]


def sizes(folder: str) -> pd.DataFrame:
    """Core-seconds and megabytes of a budget at every context, by head."""
    rates = measure_rates(Job(Shape(1, 1, 1, 64, 1), SIZES[0], texts=1))
    libraries = {place: told(folder, *place, FEW)[1] for place in HEADS}
    rows = []
    for tokens in SIZES:
        job = Job(Shape(1, 1, 1, 64, 1), tokens, texts=1)
        stage = next(one for one in job.stages() if "plan" in one.jobs)
        for layer, head in HEADS:
            seconds, peak = told(folder, layer, head, tokens)
            rows.append(
                {
                    "tokens": tokens,
                    "layer": layer,
                    "head": head,
                    "core_seconds": seconds,
                    "predicted_core_seconds": Estimate(job, rates).seconds(stage),
                    "megabytes": peak - libraries[layer, head],
                    "predicted_megabytes": (job.read + stage.bytes) / 1e6,
                }
            )
    return pd.DataFrame(rows)


def queries(folder: str) -> pd.DataFrame:
    """Share of all queries that keep the error on a budget made for 99 % of 128 of them."""
    terms, rows = Terms(), []
    for layer in LAYERS:
        for head in range(al.models.open_capture(folder).heads):
            found = shorter(folder, layer, head, CONTEXT)
            few, every = (
                fixed_tokens(errors_of(al.TopK(1), Queries.of(found, most)), terms)
                for most in (SAMPLED, CONTEXT)
            )
            rows.append({"covered": float((every <= terms.over_queries(few)).mean())})
    covered = pd.DataFrame(rows).covered
    law = Job(Shape(1, 1, 1, 64, 1), CONTEXT, queries=SAMPLED)
    found = {
        "heads": len(covered),
        "asked": SAMPLED,
        "of": CONTEXT // 2,
        "covered": covered.mean(),
        "stderr": covered.std() / len(covered) ** 0.5,
        "predicted": law.share_covered,
        "spread": covered.std(),
        "predicted_spread": law.share_error,
    }
    return pd.DataFrame([found])


if __name__ == "__main__":
    if len(sys.argv) == 5:
        one(*sys.argv[1:])
    else:
        model = al.models.load("smollm2")
        ids = model.ids(al.models.wikipedia()["Anarchism"].text, SIZES[-1])
        with tempfile.TemporaryDirectory() as folder:
            al.models.capture(model, ids, layers=LAYERS, folder=folder)
            keep(sizes=sizes(folder), queries=queries(folder))
