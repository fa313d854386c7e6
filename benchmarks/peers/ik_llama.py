"""Milliseconds of a decoded token of ik_llama.cpp, by context length and cache type.

It runs in an environment of its own: `make peers` builds it, and runs

    .venv-llama/bin/python benchmarks/peers/ik_llama.py MODEL.gguf TOKENS.json OUT.json

TOKENS.json holds the token ids of a long text. Its logits are not used: here they are far from
those of the same weights in other programs.
"""

import json
import sys
import time
from pathlib import Path

import ik_llama_cpp._ctypes_api as api
import numpy as np

CONTEXTS = (256, 1024, 4096, 7900)
TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2}  # numbers of ggml; it has no q5_0 on the CPU
WRITTEN = 48


class Context:
    """A model with a cache of one type."""

    def __init__(self, model: int, kind: int, threads: int) -> None:
        params = api.llama_context_default_params()
        params.n_ctx = params.n_batch = 8192
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = kind
        params.flash_attn = True
        self.handle = api.llama_init_from_model(model, params)

    def read(self, tokens: list[int], start: int) -> None:
        """Read tokens from a position on."""
        batch = api.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for place, token in enumerate(tokens):
            batch.token[place], batch.pos[place] = token, start + place
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, 0
            batch.logits[place] = int(place == len(tokens) - 1)
        if api.llama_decode(self.handle, batch):
            raise SystemExit("ik_llama.cpp could not read the text.")
        api.llama_batch_free(batch)

    def milliseconds(self, tokens: list[int], context: int) -> float:
        """Median time of a token after `context` of them."""
        api.llama_kv_cache_clear(self.handle)
        self.read(tokens[:context], 0)
        times = []
        for place in range(context, context + WRITTEN):
            start = time.perf_counter()
            self.read(tokens[place : place + 1], place)
            times.append(1e3 * (time.perf_counter() - start))
        return float(np.median(times))


def main() -> None:
    """Measure every cache type."""
    path, tokens, out = sys.argv[1:4]
    threads = int(sys.argv[4]) if len(sys.argv) > 4 else 2
    contexts = [int(text) for text in sys.argv[5:]] or CONTEXTS
    ids = json.loads(Path(tokens).read_text())
    api.llama_backend_init()
    model = api.llama_model_load_from_file(path.encode(), api.llama_model_default_params())
    rows = []
    for name, kind in TYPES.items():
        context = Context(model, kind, threads)
        for length in contexts:
            ms = context.milliseconds(ids, length)
            rows.append({"cache": name, "tokens": length, "ms": ms, "threads": threads})
            print(rows[-1], flush=True)
        api.llama_free(context.handle)
    Path(out).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
