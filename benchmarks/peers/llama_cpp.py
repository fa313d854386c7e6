"""Milliseconds that a decoded token of llama.cpp takes, by context length and cache type.

It runs in an environment of its own: `make peers` builds it, and runs

    .venv-llama/bin/python benchmarks/peers/llama_cpp.py MODEL.gguf TOKENS.json OUT.json

TOKENS.json holds the token ids of a long text. One JSON list of rows is written.
"""

import json
import sys
from pathlib import Path

from xllamacpp import CommonParams, Server, ggml_type, llama_flash_attn_type

CONTEXTS = (256, 1024, 4096, 7900)
TYPES = {"f16": "GGML_TYPE_F16", "q8_0": "GGML_TYPE_Q8_0", "q4_0": "GGML_TYPE_Q4_0"}
WRITTEN = 48


def main() -> None:
    """Time every cache type and context length."""
    model, tokens, out = sys.argv[1:4]
    threads = int(sys.argv[4]) if len(sys.argv) > 4 else 2
    ids = json.loads(Path(tokens).read_text())
    rows = []
    for name, kind in TYPES.items():
        params = CommonParams()
        params.model.path = model
        params.n_ctx = 8192
        params.n_parallel = 1
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
        params.cache_type_k = params.cache_type_v = getattr(ggml_type, kind)
        params.flash_attn_type = llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
        params.warmup = True
        server = Server(params)
        for context in CONTEXTS:
            request = {
                "prompt": ids[:context],
                "n_predict": WRITTEN,
                "temperature": 0,
                "ignore_eos": True,
                "cache_prompt": True,
            }
            best = None
            for _ in range(2):
                answer = server.handle_completions(request)
                answer = json.loads(answer) if isinstance(answer, str) else answer
                each = answer["timings"]["predicted_per_token_ms"]
                best = each if best is None else min(best, each)
            rows.append({"cache": name, "tokens": context, "ms": best, "threads": threads})
            print(rows[-1], flush=True)
        del server
    Path(out).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
