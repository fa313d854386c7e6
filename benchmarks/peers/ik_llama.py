"""Milliseconds of a decoded token of ik_llama.cpp, and the KL of its cache types.

It runs in an environment of its own: `make peers` builds it, and runs

    .venv-llama/bin/python benchmarks/peers/ik_llama.py MODEL.gguf TOKENS.json OUT.json

TOKENS.json holds the token ids of a long text. KL is that of the next token over the first tokens
of the text, of its own logits with a cache of each type against those with a cache of 16 bits.
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
COMPARED = 1024


class Context:
    """A model with a cache of one type."""

    def __init__(self, model: int, kind: int, threads: int) -> None:
        params = api.llama_context_default_params()
        params.n_ctx = params.n_batch = 8192
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = kind
        params.flash_attn = True
        self.handle = api.llama_init_from_model(model, params)
        self.words = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))

    def read(self, tokens: list[int], start: int, wanted: bool = False) -> np.ndarray:
        """Read tokens from a position on; logits of all of them if wanted."""
        batch = api.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for place, token in enumerate(tokens):
            batch.token[place], batch.pos[place] = token, start + place
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, 0
            batch.logits[place] = int(wanted or place == len(tokens) - 1)
        if api.llama_decode(self.handle, batch):
            raise SystemExit("ik_llama.cpp could not read the text.")
        rows = range(len(tokens)) if wanted else ()
        logits = [
            np.ctypeslib.as_array(api.llama_get_logits_ith(self.handle, row), (self.words,)).copy()
            for row in rows
        ]
        api.llama_batch_free(batch)
        return np.array(logits, dtype=np.float64)

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

    def log_probabilities(self, tokens: list[int]) -> np.ndarray:
        """Log probabilities of the next token after each of some tokens."""
        api.llama_kv_cache_clear(self.handle)
        logits = self.read(tokens, 0, wanted=True)
        logits -= logits.max(1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def main() -> None:
    """Measure every cache type."""
    path, tokens, out = sys.argv[1:4]
    threads = int(sys.argv[4]) if len(sys.argv) > 4 else 2
    contexts = [int(text) for text in sys.argv[5:]] or CONTEXTS
    ids = json.loads(Path(tokens).read_text())
    api.llama_backend_init()
    model = api.llama_model_load_from_file(path.encode(), api.llama_model_default_params())
    rows, dense = [], None
    for name, kind in TYPES.items():
        context = Context(model, kind, threads)
        logs = context.log_probabilities(ids[:COMPARED])
        dense = logs if dense is None else dense
        each = (np.exp(dense) * (dense - logs)).sum(1)
        kl = {"kl": float(each.mean()), "kl_stderr": float(each.std() / len(each) ** 0.5)}
        for length in contexts:
            ms = context.milliseconds(ids, length)
            rows.append({"cache": name, "tokens": length, "ms": ms, "threads": threads} | kl)
            print(rows[-1], flush=True)
        api.llama_free(context.handle)
    Path(out).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
