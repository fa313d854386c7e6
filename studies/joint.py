"""Plans that buy keys read, bits and evictions together: bytes, losses, and sums of losses.

`joint-plan` is a plan for 0.01 nats on a text of 4096 tokens, the last 512 of them decoded.
`mixtures` are several changes at once, predicted and run. `uniform-caches` are plans made on one
article beside uniform 4-bit caches of as many bytes, on other texts. `stored-bytes` are such plans
beside the best press of kvpress that stores as many bytes: its losses are those of
docs/tables/presses-compared.md, on the same tokens.
python studies/joint.py [joint-plan] [mixtures] [uniform-caches] [stored-bytes]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd

import attnlimit as al
from attnlimit.models.texts import read_corpus
from attnlimit.planning.calibration import calibration_of
from attnlimit.planning.changes import Several
from attnlimit.planning.error import OutputError, disagreement, output_errors
from attnlimit.planning.planner import make_plans
from attnlimit.planning.precision import LayerPrecision
from attnlimit.planning.target import NextToken
from tables import TABLES, SavedRows, write_tables

FOLDER = Path("runs/joint")
PLANNED = "wikipedia:Anarchism"
OTHERS = ("sotu:Truman 1946", "wikipedia:Aristotle", "wikipedia:Apollo 11")
TARGET, TOKENS, DECODED = 0.01, 4096, 512
SHORT, AFTER, REPEATS = 1200, 200, 3
TARGETS = [1e-4 * 2 ** (step / 3) for step in range(36)]
PRESSED = {  # texts, and their columns in the table of presses
    "wikipedia:Ayn Rand": "*Ayn Rand*",
    "sotu:Clinton 1998": "Clinton 1998",
    "sotu:Roosevelt 1905": "Roosevelt 1905",
}
Made = tuple[pd.DataFrame, float]
"""A table, and the seconds that it took."""

PROMPT, PROBES = 300, 4
MIXTURES = {
    "read, bits": (al.Threshold(64), al.Quantize(8, 4)),
    "read, fewer bits": (al.Threshold(96), al.Quantize(6, 4)),
    "top-k + sample, bits": (al.Keep(al.TopK(32), sample=32, weighted=True), al.Quantize(8, 4)),
    "read, q4_0": (al.Threshold(48), al.Quantize.parse("q4_0")),
    "read, q5_0": (al.Threshold(128), al.Quantize.parse("q5_0")),
    "read, int4": (al.Threshold(96), al.Quantize.parse("int4")),
    "evict, bits": (al.Evict(0.6, again=None), al.Quantize(8, 4)),
    "evict, q4_0": (al.Evict(0.5, again=None), al.Quantize.parse("q4_0")),
    "read, evict": (al.Threshold(64), al.Evict(0.6, again=None)),
    "read, evict, bits": (al.Threshold(96), al.Evict(0.7, again=None), al.Quantize(8, 4)),
}


def ids_of(model: Any, text: str, tokens: int) -> list[int]:
    """First tokens of a text."""
    return list(model.ids(read_corpus(text).joined(), tokens))


def joint_plans(model: Any) -> Made:
    """A plan at 4096 tokens for the fewest bytes read, and runs with it."""
    rows, path = SavedRows(FOLDER / "joint-plan.jsonl"), FOLDER / "joint-plan.json"
    ids = ids_of(model, PLANNED, TOKENS)
    if not path.exists():
        calibration = calibration_of(model, [ids], NextToken(TARGET))
        (plan,) = make_plans(
            calibration, [NextToken(TARGET)], minimise="bytes_read", decode=DECODED, complete=False
        )
        plan.write(path)
    plan = al.Plan.read(path)
    print(plan, flush=True)
    (read, all_read), (stored, all_stored), _ = plan.costs().values()
    costs = {
        "read of dense, %": 100 * read / all_read,
        "stored of float32, %": 100 * stored / all_stored,
        "predicted": plan.predicted,
        "prediction_error": plan.stderr,
    }
    for seed in range(REPEATS):
        if not rows.has(seed=seed):
            run = al.models.evaluate(model, ids, plan, repeats=1, seed=seed)
            rows.add({"seed": seed, "measured": run.kl, "mean_keys": run.mean_keys})
    seen = rows.frame()["measured"]
    error = seen.std(ddof=1) / len(seen) ** 0.5
    reason = disagreement(plan.predicted, plan.stderr, seen.mean(), error)
    row = {
        **costs, "measured": seen.mean(), "stderr": error, "ratio": plan.predicted / seen.mean(),
        "trusted": "no" if reason else "yes",
    }  # fmt: skip
    return pd.DataFrame([row]), rows.seconds


def mixtures(model: Any) -> Made:
    """Ten mixtures of changes: the sum of predictions, and runs with all of them."""
    rows = SavedRows(FOLDER / "mixtures.jsonl")
    ids = ids_of(model, OTHERS[0], 2 * PROMPT)
    left = {name: list(parts) for name, parts in MIXTURES.items() if not rows.has(mixture=name)}
    errors: dict[str, OutputError] = {}
    for evicts in (False, True):
        kind = {
            name: parts
            for name, parts in left.items()
            if any(isinstance(part, al.Evict) for part in parts) == evicts
        }
        if kind:
            errors |= output_errors(model, ids, kind, probes=PROBES, check=False)
    for name, error in errors.items():
        run = al.models.evaluate(model, ids, left[name], repeats=REPEATS)
        rows.add({
            "mixture": name, "predicted": error.value,
            "prediction_error": error.stderr, "measured": run.kl, "stderr": run.stderr["kl"],
            "ratio": error.value / run.kl,
        })  # fmt: skip
    return rows.frame(), rows.seconds


def uniform_caches(model: Any) -> Made:
    """Plans beside uniform caches in 4 bits that hold as many bytes or more."""
    rows = SavedRows(FOLDER / "uniform.jsonl")
    for text in OTHERS:
        ids = ids_of(model, text, SHORT)
        for name in ("q4_0", "int4"):
            one = al.Quantize.parse(name)
            plan = plan_of_size(model, share_of(one, model))
            layers = LayerPrecision((one,) * len(plan.heads))
            for method, change in (("uniform", Several((layers,), AFTER)), ("plan", plan)):
                if rows.has(text=text, cache=name, method=method):
                    continue
                uniform = method == "uniform"
                run = al.models.evaluate(model, ids, change, repeats=1 if uniform else REPEATS)
                stored = share_of(one, model) if uniform else share(plan)
                rows.add({
                    "text": text, "cache": name, "method": method,
                    "stored of float32, %": 100 * stored, "kl": run.kl,
                    "kl_stderr": run.stderr["kl"], "perplexity": run.perplexity,
                })  # fmt: skip
    return rows.frame(), rows.seconds


def stored_bytes(model: Any) -> Made:
    """Plans beside the best press of kvpress at equal bytes, those of float32 and of 16 bits."""
    rows = SavedRows(FOLDER / "stored.jsonl")
    presses = best_presses(TABLES / "presses-compared.md")
    for kept in (0.5, 0.25, 0.1):
        for number, bits in ((1.0, "float32"), (0.5, "bfloat16")):
            if all(rows.has(kept=kept, numbers=bits, text=text) for text in PRESSED):
                continue
            plan = plan_of_size(model, kept * number)
            for text, column in PRESSED.items():
                if rows.has(kept=kept, numbers=bits, text=text):
                    continue
                ids = ids_of(model, text, SHORT)
                run = al.models.evaluate(model, ids, plan, repeats=REPEATS)
                press, loss = presses[kept, column]
                rows.add({
                    "kept": kept, "numbers": bits, "text": text,
                    "plan stores, %": 100 * share(plan) / number, "predicted": plan.predicted,
                    "plan's KL": run.kl, "plan's KL_stderr": run.stderr["kl"],
                    "best press": press, "its KL": loss, "plan / press": run.kl / loss,
                })  # fmt: skip
    frame = rows.frame()
    frame["kept"] = [f"{100 * kept:g} % of {n}" for kept, n in frame[["kept", "numbers"]].values]
    return frame.drop(columns="numbers"), rows.seconds


def best_presses(table: Path) -> dict[tuple[float, str], tuple[str, float]]:
    """For each share and column of a table of presses, the best press and its loss."""
    lines = [line for line in table.read_text().splitlines() if line.startswith("|")]
    header = [cell.strip() for cell in lines[0].split("|")[1:-1]]
    best: dict[tuple[float, str], tuple[str, float]] = {}
    kept = 0.0
    for line in lines[2:]:
        cells = dict(zip(header, (c.strip() for c in line.split("|")[1:-1]), strict=True))
        kept = float(cells["kept"].removesuffix(" %")) / 100 if cells["kept"] else kept
        if cells["method"].startswith("`Evict`"):
            continue
        for column in PRESSED.values():
            loss = float(cells[column].split(" ")[0])
            if loss < best.get((kept, column), ("", float("inf")))[1]:
                best[kept, column] = cells["method"], loss
    return best


def share(plan: al.Plan) -> float:
    """Share of float32 bytes that a plan stores."""
    stored, whole = plan.costs()["bytes_stored"]
    return stored / whole


def share_of(precision: al.Quantize, model: Any) -> float:
    """Share of float32 bytes that a uniform cache stores."""
    width = model.model.config.head_dim
    return precision.token_bytes(width, width, 4) / (8 * width)


def plan_of_size(model: Any, most: float) -> al.Plan:
    """Return the plan of the least loss that stores at most a share of float32 bytes."""
    paths = [FOLDER / f"target-{number}.json" for number in range(len(TARGETS))]
    if not paths[-1].exists():
        calibration = calibration_of(model, [ids_of(model, PLANNED, SHORT)], NextToken(TARGET))
        plans = make_plans(
            calibration, [NextToken(kl) for kl in TARGETS], minimise="bytes_stored", decode=AFTER,
            complete=False, scheme="index",
        )  # fmt: skip
        for plan, path in zip(plans, paths, strict=True):
            plan.write(path)
    plans = [al.Plan.read(path) for path in paths]
    fits = [plan for plan in plans if share(plan) <= most]
    return min(fits, key=lambda plan: plan.predicted)


STUDIES = {
    "joint-plan": joint_plans, "mixtures": mixtures, "uniform-caches": uniform_caches,
    "stored-bytes": stored_bytes,
}  # fmt: skip


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    loaded = al.models.load("smollm2", device="cpu")
    for study in sys.argv[1:] or STUDIES:
        made, seconds = STUDIES[study](loaded)
        write_tables({study: made}, seconds=seconds)
