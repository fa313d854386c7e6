"""Fast decoding: its kernels and a whole model, against dense attention and other programs.

Kernels read real keys of one layer of SmolLM2, tiled with noise past 8000 tokens, and are compared
at equal error. The dense baseline is the fastest that PyTorch has here: grouped matrix products on
a preallocated cache.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numba
import numpy as np
import pandas as pd
import torch
from torch import Tensor

import attnlimit
from attnlimit.decoding.cost import cost_model
from attnlimit.decoding.dot import BLOCK
from attnlimit.decoding.index import (
    FLOOR,
    PAGE_FLOOR,
    SPARE_PAGES,
    KeyIndex,
    centred_keys,
    zeros,
)
from attnlimit.decoding.kernels import NEVER, decode_by_keys, decode_by_pages
from attnlimit.decoding.rows import OUTLIERS
from attnlimit.models import addresses, fast_decoding, load
from attnlimit.planning.cost import Shape
from attnlimit.samplers import Threshold, TwoLevel
from benchmarks.row import Row
from tables import TABLES, format_number, write_fragment

LAYER = 15
SIZES = (1024, 4096, 8192, 16384, 65536, 262144)
TARGETS = {
    ("SmolLM2", 4096): 3.5,
    ("SmolLM2", 8192): 5.0,
    ("SmolLM2", 16384): 8.0,
    ("SmolLM2", 65536): 20.0,
    ("SmolLM2", 262144): 40.0,
    ("Llama-3-8B", 32768): 10.0,
}
C = 96.0
MODEL_SETTINGS = ((8000, 1), (8000, 4), (8000, 8), (4096, 1), (4096, 4), (1024, 1), (256, 1))
"""Tokens and sequences of a batch."""
TEXTS = ("Taft 1910", "Truman 1946", "Carter 1980", "Roosevelt 1907")
OUT = Path("report/decoding.json")
PEERS = {
    "llama.cpp": Path("runs/peers/llama_cpp.json"),
    "ik_llama.cpp": Path("runs/peers/ik_llama.json"),
}
PEER_LOSSES = Path("runs/peers/llama_loss.json")
"""Times of other programs and the losses of llama.cpp's caches, written by `make peers`."""
PICTURE = Path("docs/images/decoding.png")
LOOKS = {"llama.cpp": (":", "^▲"), "transformers": ("-", "s■"), "ik_llama.cpp": ("-.", "D◆")}
"""Line, marker and the marker as a letter, of other programs."""
NOTE: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 9}
STARTED = time.perf_counter()


def captured_layer(tokens: int = 8192) -> tuple[Tensor, Tensor, Tensor, float]:
    """Last query, keys and values of one layer of SmolLM2 on an address, and its scale."""
    from attnlimit.models.attention import attend_dense, attention_as

    model = load("smollm2")
    assert model.tokenizer is not None
    text = next(address.text for address in addresses() if address.title == TEXTS[0])
    ids = torch.tensor([model.tokenizer(text).input_ids[: tokens - 1]])
    held: list[Any] = []

    def attention(call: Any) -> Tensor:
        if call.layer == LAYER:
            held.append((call.query[0, :, -1].clone(), call.key[0], call.value[0], call.scale))
        return attend_dense(call)

    with torch.no_grad(), attention_as(model.model, attention):
        model.model(ids, use_cache=False, logits_to_keep=1)
    query, key, value, scale = held[0]
    return query, key, value, float(scale)


class Problem:
    """One decoded token of one layer: dense attention, one level and two levels."""

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> None:
        self.query, self.scale = query, scale
        groups, tokens, width = key.shape
        heads = len(query)
        rows = [zeros((groups, tokens, width), np.float32) for _ in range(2)]  # as caches have them
        self.key, self.value = (torch.from_numpy(row) for row in rows)
        self.key[:], self.value[:] = key, value
        self.first, self.count = np.zeros(groups, np.int64), np.full(groups, tokens, np.int64)
        self.index = KeyIndex(key.mean(1).numpy(), tokens)
        self.index.append(rows[0], self.first, self.count)
        self.pages = self.index.summarise(centred_keys(rows[0], self.first, self.index.mean))
        slots = self.index.codes.shape[1] * BLOCK
        self.out, self.stats = np.zeros((heads, width), np.float32), np.zeros((heads, 4))
        far = -(-slots * OUTLIERS // BLOCK // BLOCK) * BLOCK
        self.scratch = np.zeros((heads, slots + far), np.float32)
        self.chosen = np.zeros((heads, 3, slots), np.float32)
        self.masses = np.zeros((heads, self.pages.lift.shape[1]), np.float32)
        self.common = (
            query.numpy(), np.float32(scale / math.log(2)), *rows, self.first, self.count,
            np.zeros((1, 0), np.float32), np.float32(0), np.full(heads, NEVER, np.float32),
            self.index.codes, self.index.scales, self.index.mean,
        )  # fmt: skip

    def dense(self) -> Tensor:
        """Grouped matrix products."""
        query = self.query.view(len(self.key), -1, self.query.shape[-1])
        weights = torch.softmax(torch.bmm(query, self.key.transpose(1, 2)) * self.scale, -1)
        return torch.bmm(weights, self.value)

    def one_level(self, c: float = C, seed: int = 0) -> None:
        """Read 4 bits of every key."""
        thresholds = np.full(len(self.query), c, np.float32)
        decode_by_keys(
            *self.common, thresholds, FLOOR, seed, 0, self.count[:1], self.scratch, self.chosen,
            self.out, self.stats,
        )  # fmt: skip

    def two_levels(self, c: float, seed: int = 0) -> None:
        """Read summaries of pages, and 4 bits of the keys of some."""
        pages = self.pages
        thresholds = np.full(len(self.query), c, np.float32)
        decode_by_pages(
            *self.common, *pages.arrays(), thresholds, FLOOR, PAGE_FLOOR, SPARE_PAGES, seed, 0,
            self.count[:1], self.masses, self.scratch, self.chosen, self.out, self.stats,
        )  # fmt: skip

    def error(self, run: Callable[[int], None], draws: int = 200) -> float:
        """Root mean square error of the outputs, relative to their size."""
        exact = self.dense().reshape(len(self.query), -1).numpy()
        square = 0.0
        for seed in range(draws):
            run(seed)
            square += float(((self.out - exact) ** 2).sum()) / draws
        return math.sqrt(square / float((exact**2).sum()))

    def matched(self) -> float:
        """Least c, in steps of 5 %, at which two levels err no more than one level at C."""
        wanted = self.error(lambda seed: self.one_level(C, seed))
        grid = [C * 1.05**step for step in range(28)]
        for c in grid:
            if self.error(lambda seed, c=c: self.two_levels(c, seed)) <= wanted:  # type: ignore[misc]
                return c
        return grid[-1]


def milliseconds(work: Callable[[], object], seconds: float = 0.5) -> float:
    """Least time of a call."""
    work()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        work()
        best = min(best, 1e3 * (time.perf_counter() - start))
    return best


def tiled(key: Tensor, value: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
    """Keys and values of a longer text: copies with noise on the keys."""
    generator = torch.Generator().manual_seed(0)
    copies = -(-tokens // key.shape[1])
    noise = 0.3 * key.std()
    keys = [key] + [
        key + noise * torch.randn(key.shape, generator=generator) for _ in range(copies - 1)
    ]
    return torch.cat(keys, 1)[:, -tokens:], torch.cat([value] * copies, 1)[:, -tokens:]


def kernel_rows(threads: int) -> list[dict[str, Any]]:
    """Times of the kernels alone, at equal error."""
    torch.set_num_threads(threads)
    numba.set_num_threads(threads)
    query, key, value, scale = captured_layer()
    rows = []
    for tokens in SIZES:
        problem = Problem(query, *tiled(key, value, tokens), scale)
        row = {"shape": "SmolLM2", "threads": threads, "tokens": tokens}
        rows.append(row | _timed(problem, Shape(9, 3, 64, 64, 4)))
    rng = torch.Generator().manual_seed(0)
    for name, heads, groups, width, tokens in (
        ("Llama-3-8B", 32, 8, 128, 32768),
        ("Gemma 3 4B", 8, 4, 256, 32768),
    ):
        keys, values = (torch.randn(groups, tokens, width, generator=rng) for _ in range(2))
        queries = 1.5 * torch.randn(heads, width, generator=rng)
        problem = Problem(queries, keys, values, width**-0.5)
        row = {"shape": name, "threads": threads, "tokens": tokens}
        rows.append(row | _timed(problem, Shape(heads, groups, width, width, 4)))
    return rows


def _timed(problem: Problem, shape: Shape) -> dict[str, Any]:
    tokens, seeds = int(problem.count[0]), count(1000)  # every call draws other keys
    c = problem.matched() if tokens >= 1024 else C
    predicted = (
        cost_model().milliseconds(shape, tokens, C),
        cost_model().milliseconds(shape, tokens, c),
    )
    return {
        "dense_ms": milliseconds(problem.dense),
        "one_level_ms": milliseconds(lambda: problem.one_level(C, next(seeds))),
        "two_levels_ms": milliseconds(lambda: problem.two_levels(c, next(seeds))),
        "c_two_levels": c,
        "error": problem.error(lambda seed: problem.one_level(C, seed)),
        "error_two_levels": problem.error(lambda seed: problem.two_levels(c, seed)),
        "predicted_dense_ms": predicted[0][0],
        "predicted_one_level_ms": predicted[0][1],
        "predicted_two_levels_ms": predicted[1][2],
    }


def grouped_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: Any = None, **_: Any
) -> tuple[Tensor, None]:
    """The fastest dense attention of a decoded token: grouped matrix products."""
    batch, heads, length, width = query.shape
    if length > 1:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(module, query, key, value, mask, scaling=scaling)
    groups = key.shape[1]
    q = query.reshape(batch, groups, -1, width)
    out = torch.softmax(q @ key.transpose(2, 3) * scaling, -1) @ value
    return out.reshape(batch, 1, heads, width), None


def filled_caches(network: Any, ids: Tensor, tokens: int) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of every layer after a prompt, (B, H_kv, tokens, d), one text at a time."""
    parts: list[list[tuple[Tensor, Tensor]]] = []
    for row in ids:
        cache = network(row[None, :tokens], use_cache=True, logits_to_keep=1).past_key_values
        parts.append([(layer.keys, layer.values) for layer in cache.layers])
    return [
        (torch.cat([key for key, _ in layer]), torch.cat([value for _, value in layer]))
        for layer in zip(*parts, strict=True)
    ]


@torch.no_grad()
def model_rows(
    settings: tuple[tuple[int, int], ...] = MODEL_SETTINGS,
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16),
    steps: int = 24,
) -> list[dict[str, Any]]:
    """Times of decoded tokens in SmolLM2: as transformers comes, best dense, and fast.

    Batches of more sequences than texts repeat them.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    model = load("smollm2")
    network, tokenizer = model.model, model.tokenizer
    assert tokenizer is not None
    AttentionInterface.register("grouped", grouped_attention)
    AttentionMaskInterface.register("grouped", sdpa_mask)
    documents = [document for document in addresses() if document.title in TEXTS]
    longest = max(tokens for tokens, _ in settings)
    texts = [tokenizer(document.text).input_ids[: longest + steps] for document in documents]
    ids = torch.tensor(texts)
    network.set_attn_implementation("sdpa")
    filled = filled_caches(network, ids, longest)
    rows = []
    for dtype in dtypes:
        network.to(dtype)
        for tokens, batch in settings if dtype == torch.float32 else settings[:1]:
            those = [place % len(ids) for place in range(batch)]
            row = {"numbers": str(dtype).removeprefix("torch."), "tokens": tokens, "batch": batch}
            next_ids = ids[those, tokens : tokens + steps]
            rows.append(row | _model_times(model, filled, those, tokens, next_ids))
            print(rows[-1], flush=True)
    return rows


def _model_times(
    model: Any, filled: list[tuple[Tensor, Tensor]], those: list[int], tokens: int, ids: Tensor
) -> dict[str, float]:
    """Least times of a step, and of its attention, after a prompt whose caches are filled."""
    from transformers import AttentionInterface, DynamicCache

    from attnlimit.decoding.cache import prepare_cache
    from attnlimit.decoding.rewind import rewound

    network, steps = model.model, ids.shape[1]
    attention_ms: list[float] = []

    def cache_of() -> Any:
        cache = DynamicCache(config=network.config)
        for number, layer in enumerate(filled):
            key, value = (part[those, :, :tokens].to(network.dtype) for part in layer)
            cache.update(key, value, number)
        return cache

    def run(cache: Any) -> tuple[Tensor, float]:
        logits, times = [], []
        for step in range(steps):
            start = time.perf_counter()
            out = network(ids[:, step : step + 1], past_key_values=cache, use_cache=True)
            times.append(1e3 * (time.perf_counter() - start))
            logits.append(torch.log_softmax(out.logits[:, 0].float(), -1))
        return torch.stack(logits), min(times)

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = grouped_attention(*args, **kwargs)
        attention_ms.append(1e3 * (time.perf_counter() - start))
        return result

    row: dict[str, float] = {}
    network.set_attn_implementation("sdpa")
    _, row["transformers_ms"] = run(cache_of())
    fast: Any = prepare_cache(cache_of(), network)
    AttentionInterface.register("grouped", timed)
    network.set_attn_implementation("grouped")
    with rewound(fast):
        dense, row["dense_ms"] = run(fast)
    row["dense_attention_ms"] = float(np.reshape(attention_ms, (steps, -1)).sum(1).min())
    network.set_attn_implementation("sdpa")
    length = fast.get_seq_length()
    for name, sampler, levels in (
        ("one_level", Threshold(C), 1),
        ("two_levels", TwoLevel(1.15 * C), 2),
    ):
        with fast_decoding(model, sampler, levels=levels, dense_below=0) as stats:
            logits, row[f"{name}_ms"] = run(fast)
        kl = (dense.exp() * (dense - logits)).sum(-1)
        row[f"{name}_attention_ms"] = 1e3 * min(stats.attention_each)
        row[f"{name}_kl"] = float(kl.mean())
        row[f"{name}_kl_stderr"] = float(kl.std() / kl.numel() ** 0.5)
        row[f"{name}_keys"] = stats.keys
        for layer in fast.layers:
            layer.rewind(length)
            layer.index = None
    return row


def first_call_seconds() -> float:
    """Seconds that a first call takes longer than a later one: kernels are compiled."""
    code = (
        "import time, torch, transformers as t, attnlimit as al\n"
        "c = t.LlamaConfig(vocab_size=9, hidden_size=64, num_hidden_layers=1,"
        " num_attention_heads=2, num_key_value_heads=1, intermediate_size=8)\n"
        "n = t.LlamaForCausalLM(c).eval(); i = torch.zeros(1, 512, dtype=torch.long); taken = []\n"
        "for _ in range(2):\n"
        "    start = time.perf_counter()\n"
        "    with al.models.fast_decoding(n, al.TwoLevel(8.0), dense_below=0):\n"
        "        n.generate(i, max_new_tokens=3, min_new_tokens=3)\n"
        "    taken.append(time.perf_counter() - start)\n"
        "print(taken[0] - taken[1])"
    )
    with TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout.split()[-1])


def peer_ms(name: str = "f16") -> float:
    """Milliseconds that a token of llama.cpp takes longer at 7900 tokens than at 256."""
    rows = json.loads(PEERS["llama.cpp"].read_text())
    times = {row["tokens"]: row["ms"] for row in rows if row["cache"] == name}
    return float(times[7900] - times[256])


def run() -> list[Row]:
    """Return ratios of this suite, and write its tables and its figure."""
    threads = torch.get_num_threads()
    kernels = [*kernel_rows(1), *kernel_rows(2)]
    torch.set_num_threads(threads)
    numba.set_num_threads(threads)
    return report(kernels, model_rows(), first_call_seconds())


def report(
    kernels: list[dict[str, Any]], models: list[dict[str, Any]], compiling: float
) -> list[Row]:
    """Ratios, tables and figure of what was measured."""
    write_results(kernels, models)
    rows = []
    one = [row for row in kernels if row["threads"] == 1]
    for row in one:
        where = f"{row['shape']}, {row['tokens']} keys, one thread"
        target = TARGETS.get((row["shape"], row["tokens"]))
        if target is not None:
            best = min(row["one_level_ms"], row["two_levels_ms"])
            rows.append(Row(f"{where}: attention, best dense", best, row["dense_ms"], target, "ms"))
    long = {row["tokens"]: row for row in one if row["shape"] == "SmolLM2"}
    growth = long[262144]["two_levels_ms"] / long[65536]["two_levels_ms"]
    rows.append(Row("time at 262144 keys over 65536", growth, 2.5, 1.0, "times"))
    single = {(row["tokens"], row["batch"]): row for row in models if row["numbers"] == "float32"}
    for (tokens, batch), row in single.items():
        if tokens == 8000:
            where = f"SmolLM2, 8000 tokens, batch {batch}"
            part, best = fast_ms(row, "_attention"), fast_ms(row)
            if batch < 8:
                name = f"{where}: attention, best dense"
                rows.append(Row(name, part, row["dense_attention_ms"], 6.0, "ms"))
            target = {1: 1.0, 4: 1.85, 8: 2.2}[batch]
            rows.append(Row(f"{where}: step, best dense", best, row["dense_ms"], target, "ms"))
            if batch == 4:
                name = f"{where}: step, transformers as it comes"
                rows.append(Row(name, best, row["transformers_ms"], 2.6, "ms"))
    if PEERS["llama.cpp"].exists():
        added = fast_ms(single[8000, 1]) - single[256, 1]["dense_ms"]
        what = "SmolLM2: a token at 8000 tokens over one at 256, llama.cpp with an f16 cache"
        rows.append(Row(what, added, peer_ms(), 5.0, "ms"))
    rows.append(Row("first call, compiled", compiling, 10.0, 1.0))
    return rows


def fast_ms(row: dict[str, Any], part: str = "") -> float:
    """Milliseconds of the faster of one and two levels."""
    return float(min(row[f"one_level{part}_ms"], row[f"two_levels{part}_ms"]))


def write_results(kernels: list[dict[str, Any]], models: list[dict[str, Any]]) -> None:
    """Write all numbers, two tables for the documentation and its figure."""
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({"kernels": kernels, "models": models}, indent=1) + "\n")
    source = {
        "command": "python -m benchmarks decoding",
        "version": attnlimit.__version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": time.perf_counter() - STARTED,
    }
    alone = pd.DataFrame([
        {
            "heads of": row["shape"],
            "threads": row["threads"],
            "keys": row["tokens"],
            "dense, ms": row["dense_ms"],
            "one level, ms": row["one_level_ms"],
            "two levels, ms": row["two_levels_ms"],
            "faster by": row["dense_ms"] / min(row["one_level_ms"], row["two_levels_ms"]),
            # Random keys have outputs near zero: an error relative to them says nothing.
            "error, one level": row["error"] if row["shape"] == "SmolLM2" else np.nan,
            "error, two levels": row["error_two_levels"] if row["shape"] == "SmolLM2" else np.nan,
            "predicted, ms": " / ".join(
                format_number(row[f"predicted_{name}_ms"], 2)
                for name in ("dense", "one_level", "two_levels")
            ),
        }
        for row in kernels
    ])  # fmt: skip
    whole = pd.DataFrame([
        {
            "numbers": row["numbers"],
            "tokens": row["tokens"],
            "batch": row["batch"],
            "transformers, ms": row["transformers_ms"],
            "best dense, ms": row["dense_ms"],
            "fast, ms": fast_ms(row),
            "attention, dense, ms": row["dense_attention_ms"],
            "attention, fast, ms": fast_ms(row, "_attention"),
            "KL, one level": row["one_level_kl"],
            "KL, one level_stderr": row["one_level_kl_stderr"],
            "KL, two levels": row["two_levels_kl"],
            "KL, two levels_stderr": row["two_levels_kl_stderr"],
        }
        for row in models
    ])  # fmt: skip
    write_fragment(TABLES, "decoding-kernels", alone, source)
    write_fragment(TABLES, "decoding-model", whole, source)
    if peer_rows():
        write_fragment(TABLES, "decoding-peers", peer_table(models), source)
    draw(kernels, models, PICTURE)


def peer_rows() -> list[dict[str, Any]]:
    """Times of other programs and losses of llama.cpp, where `make peers` has written them."""
    rows = []
    found = json.loads(PEER_LOSSES.read_text()) if PEER_LOSSES.exists() else []
    losses = {("llama.cpp", row["cache"]): row for row in found}
    for name, path in PEERS.items():
        for row in json.loads(path.read_text()) if path.exists() else []:
            times = {key: row[key] for key in ("cache", "tokens", "ms")}
            rows.append({"program": name} | times | losses.get((name, row["cache"]), {}))
    return rows


def peer_table(models: list[dict[str, Any]]) -> pd.DataFrame:
    """Milliseconds that a token takes longer at some lengths than at 256 tokens, and the loss."""
    one = {row["tokens"]: row for row in models if (row["numbers"], row["batch"]) == ("float32", 1)}
    lines: dict[tuple[str, str], dict[Any, Any]] = {}
    for key, name in (("transformers_ms", "transformers"), ("dense_ms", "best dense of PyTorch")):
        times = {tokens: row[key] for tokens, row in one.items()}
        lines[name, "float32"] = times | {"kl": 0.0, "kl_stderr": np.nan}
    times = {tokens: fast_ms(row) for tokens, row in one.items()} | {256: one[256]["dense_ms"]}
    best = min(("one_level", "two_levels"), key=lambda name: one[8000][f"{name}_ms"])
    loss = {end: one[8000][f"{best}_{end}"] for end in ("kl", "kl_stderr")}
    lines["attnlimit, few keys", "float32"] = times | loss
    for row in peer_rows():
        line = lines.setdefault((row["program"], row["cache"]), {})
        line[8000 if row["tokens"] == 7900 else row["tokens"]] = row["ms"]
        line |= {end: row.get(end, np.nan) for end in ("kl", "kl_stderr")}
    return pd.DataFrame([
        {"program": program, "cache": cache}
        | {f"at {n} tokens, ms more": line[n] - line[256] for n in (1024, 4096, 8000)}
        | {"KL": line["kl"], "KL_stderr": line["kl_stderr"]}
        for (program, cache), line in lines.items()
    ])  # fmt: skip


def draw(kernels: list[dict[str, Any]], models: list[dict[str, Any]], path: Path) -> None:
    """Draw milliseconds against context, of one layer and of a whole model beside others."""
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11.0, 4.2), layout="constrained")
    rows = [row for row in kernels if row["shape"] == "SmolLM2" and row["threads"] == 1]
    keys = [row["tokens"] for row in rows]
    lines = {
        "dense": ("dense attention", "-", "#003B6F"),
        "one_level": ("4 bits of every key", "--", "#B35C00"),
        "two_levels": ("pages of keys, then keys", "-.", "#4D7C0F"),
    }
    for name, (label, style, color) in lines.items():
        times = [row[f"{name}_ms"] for row in rows]
        left.plot(keys, times, style, marker="o", ms=4, color=color, lw=1.8)
        last = f"{label}\n{times[-1]:.2g} ms"
        if name != "dense":
            last += f", error {rows[-1]['error']:.0%}"
        left.annotate(last, (keys[-1], times[-1]), (8, 0), color=color, **NOTE)
    left.set(xlim=(keys[0] / 1.2, keys[-1] * 40), ylabel="milliseconds")
    left.set_title("Attention of one layer, one thread", loc="left")
    left.set_xticks(keys, [f"{n // 1024}k" for n in keys])
    table = peer_table(models)
    tokens = [1024, 4096, 8000]
    ends = []
    for row in table.to_dict("records"):
        if row["cache"] not in ("float32", "f16"):
            continue
        ours = row["program"].startswith("attnlimit")
        times = [max(row[f"at {n} tokens, ms more"], 0.1) for n in tokens]
        color = "#B35C00" if ours else "#003B6F" if row["program"].startswith("best") else "#555555"
        style, mark = LOOKS.get(row["program"], ("--" if ours else "-", "o●"))
        right.plot(tokens, times, style, marker=mark[0], ms=4, color=color, lw=1.8)
        loss = f", KL {format_number(row['KL'], 2)}" if ours else ""
        label = f"{mark[1]} {row['program']}: {times[-1]:.2g} ms{loss}"
        ends.append((times[-1], label, color))
    height = 0.0
    for time_of, label, color in sorted(ends):  # labels apart from each other
        height = max(math.log(time_of), height + 0.3) if height else math.log(time_of)
        right.annotate(label, (tokens[-1], math.exp(height)), (8, 0), color=color, **NOTE)
    right.set(xlim=(tokens[0] / 1.2, tokens[-1] * 14), ylim=(0.8, 100))
    right.set(ylabel="milliseconds more than at 256 tokens")
    right.set_title("A decoded token of SmolLM2, two threads", loc="left")
    right.set_xticks(tokens, ["1k", "4k", "8k"])
    for axis in (left, right):
        axis.set(xscale="log", yscale="log", xlabel="tokens in the cache")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.minorticks_off()
        axis.grid(True, alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    left.set_xticks(keys, [f"{n // 1024}k" for n in keys])
    right.set_xticks(tokens, ["1k", "4k", "8k"])
    figure.savefig(path, dpi=170)
    pyplot.close(figure)
