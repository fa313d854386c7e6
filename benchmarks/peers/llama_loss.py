"""KL of llama.cpp's cache types, by its own probabilities against those of its 16-bit cache.

It runs in an environment of its own: `make peers` builds it, and runs

    .venv-llama/bin/python benchmarks/peers/llama_loss.py MODEL.gguf TOKENS.json OUT.json

One JSON list of rows is written: the mean KL of the next token after the last `COMPARED` of `READ`
tokens, and its standard error.
"""

import json
import sys
from pathlib import Path

import numpy as np
from xllamacpp import CommonParams, Server, ggml_type, llama_flash_attn_type

TYPES = {"f16": "GGML_TYPE_F16", "q8_0": "GGML_TYPE_Q8_0", "q4_0": "GGML_TYPE_Q4_0"}
READ, COMPARED, WORDS = 1024, 32, 49152


def log_probabilities(model: str, kind: str, ids: list[int], threads: int) -> np.ndarray:
    """Log probabilities of the next token at every compared place."""
    params = CommonParams()
    params.model.path = model
    params.n_ctx = 2 * READ
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cache_type_k = params.cache_type_v = getattr(ggml_type, kind)
    params.flash_attn_type = llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    server = Server(params)
    rows = np.full((COMPARED, WORDS), -np.inf)
    for number, row in enumerate(rows):
        request = {
            "prompt": ids[: READ - COMPARED + number + 1],
            "n_predict": 1,
            "temperature": 0,
            "logprobs": WORDS,
            "cache_prompt": True,
        }
        answer = server.handle_completions(request)
        answer = json.loads(answer) if isinstance(answer, str) else answer
        for word in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]:
            row[word["id"]] = word["logprob"]
    return rows


def main() -> None:
    """Measure every cache type."""
    model, tokens, out = sys.argv[1:4]
    threads = int(sys.argv[4]) if len(sys.argv) > 4 else 2
    ids = json.loads(Path(tokens).read_text())
    table, dense = [], None
    for name, kind in TYPES.items():
        logs = log_probabilities(model, kind, ids, threads)
        dense = logs if dense is None else dense
        each = (np.exp(dense) * (dense - logs)).sum(1)
        kl = {"kl": float(each.mean()), "kl_stderr": float(each.std() / len(each) ** 0.5)}
        table.append({"cache": name} | kl)
        print(table[-1], flush=True)
    Path(out).write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
