"""Ten thousand tokens by fast decoding: memory beyond the cache, and the loss from first to last.

Batches of four long texts are read up to a prompt and decoded token by token along the text, while
a dense model follows. Memory is that of the process less the keys and values that both hold; it is
compared between the first and the last quarter of each batch, and so is the loss.
python studies/decoding_soak.py [--batches 0 1 2]
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from transformers import DynamicCache

import attnlimit as al
from tables import write_tables

BATCH, PROMPT, STEPS, CHUNK, C = 4, 1024, 840, 40, 64.0
ROWS = Path("runs/decoding-soak/rows.jsonl")


def resident_bytes() -> int:
    """Memory of this process, without what its allocator keeps for later."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def decoded(network: Any, ids: Tensor, cache: Any) -> Tensor:
    """Log probabilities (B, n, vocabulary) after each token, read one by one."""
    logs = []
    for place in range(ids.shape[1]):
        out = network(ids[:, place : place + 1], past_key_values=cache, use_cache=True)
        logs.append(torch.log_softmax(out.logits[:, -1].float(), -1))
    return torch.stack(logs, 1)


@torch.no_grad()
def soak(model: Any, ids: Tensor) -> dict[str, float]:
    """Decode along a batch of texts; loss and memory by quarters."""
    network = model.model
    plain = DynamicCache(config=network.config)
    for place, row in enumerate(ids):  # one by one, for the memory of a prompt's pass
        one = network(row[None, :PROMPT], use_cache=True, logits_to_keep=1).past_key_values
        for number, layer in enumerate(one.layers):
            if not place:
                plain.update(layer.keys, layer.values, number)
            else:
                held = plain.layers[number]
                held.keys = torch.cat([held.keys, layer.keys])
                held.values = torch.cat([held.values, layer.values])
    fast = DynamicCache(config=network.config)
    for number, layer in enumerate(plain.layers):
        fast.update(layer.keys, layer.values, number)
    kl, beyond = [], []
    numbers = 2 * 30 * 3 * 64 * 4  # bytes of a token in a cache
    for start in range(PROMPT, PROMPT + STEPS, CHUNK):
        part = ids[:, start : start + CHUNK]
        dense = network(part, past_key_values=plain, use_cache=True).logits.float()
        dense = torch.log_softmax(dense, -1)
        with al.models.fast_decoding(model, al.Threshold(C), levels=1, dense_below=0) as stats:
            logs = decoded(network, part, fast)
        kl.append((dense.exp() * (dense - logs)).sum(-1))
        del dense, logs
        gc.collect()
        written = numbers * (start + CHUNK) * BATCH
        index = stats.cache_bytes - 2 * sum(x.key_rows.nbytes for x in fast.layers)
        beyond.append(resident_bytes() - 2 * written - index)
    each = torch.cat(kl, 1)  # (B, steps)
    quarter, chunks = STEPS // 4, len(beyond) // 4
    row = {"decoded tokens": each.numel()}
    for name, part in (("first", each[:, :quarter]), ("last", each[:, -quarter:])):
        row[f"KL, {name} quarter"] = float(part.mean())
        row[f"KL, {name} quarter_stderr"] = float(part.std() / part.numel() ** 0.5)
    row["MB beyond the cache, first quarter"] = float(np.mean(beyond[1:chunks])) / 1e6
    row["MB beyond the cache, last quarter"] = float(np.mean(beyond[-chunks:])) / 1e6
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", nargs="+", type=int, default=[0, 1, 2], help="Batches to run.")
    given = parser.parse_args()
    ROWS.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    model = al.models.load("smollm2", device="cpu")
    documents = sorted(al.models.addresses(), key=lambda item: -len(item.text))
    for batch in given.batches:
        if any(row["batch"] == batch for row in rows):
            continue
        texts = documents[BATCH * batch : BATCH * batch + BATCH]
        ids = torch.tensor([model.ids(one.text, PROMPT + STEPS) for one in texts])
        named = ", ".join(one.title for one in texts)
        start = time.process_time()
        row = {"batch": batch, "texts": named} | soak(model, ids)
        rows.append(row | {"seconds": time.process_time() - start})
        with ROWS.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(rows[-1], flush=True)
    frame = pd.DataFrame(rows)
    write_tables({"decoding-soak": frame}, seconds=frame.pop("seconds").sum())


if __name__ == "__main__":
    main()
