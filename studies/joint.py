"""Plans that buy keys read, bits and evictions together: bytes, losses, and sums of losses.

`joint-plan` are plans for 0.01 nats on a text of 4096 tokens, the last 512 of them decoded.
`mixtures` are several changes at once, predicted and run. `uniform-caches` are plans made on one
article beside uniform 4-bit caches of as many bytes, on other texts.
python studies/joint.py [joint-plan] [mixtures] [uniform-caches]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd

import attnlimit as al
from attnlimit.models.texts import read_corpus
from attnlimit.planning.calibration import calibration_of
from attnlimit.planning.changes import Several
from attnlimit.planning.error import OutputError, output_errors
from attnlimit.planning.planner import make_plans
from attnlimit.planning.precision import LayerPrecision
from attnlimit.planning.target import NextToken
from tables import write_tables

FOLDER = Path("runs/joint")
PLANNED = "wikipedia:Anarchism"
OTHERS = ("sotu:Truman 1946", "wikipedia:Aristotle", "wikipedia:Apollo 11")
TARGET, TOKENS, DECODED = 0.01, 4096, 512
SHORT, AFTER, REPEATS = 1200, 300, 3
TARGETS = [0.0025 * 2 ** (step / 3) for step in range(22)]
Rows = list[dict[str, Any]]

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


def kept_rows(path: Path) -> Rows:
    """Rows of an earlier run."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def joint_plans(model: Any) -> pd.DataFrame:
    """Plans at 4096 tokens for the fewest bytes read."""
    ids = ids_of(model, PLANNED, TOKENS)
    rows: Rows = []
    for minimise in ("bytes_read",):
        path = FOLDER / f"{minimise}.json"
        if not path.exists():
            al.models.plan(model, ids, kl=TARGET, minimise=minimise, decode=DECODED).write(path)
        plan = al.Plan.read(path)
        print(plan, flush=True)
        (read, all_read), (stored, all_stored), _ = plan.costs().values()
        rows.append({
            "minimised": minimise.replace("_", " "), "read of dense, %": 100 * read / all_read,
            "stored of float32, %": 100 * stored / all_stored, "predicted": plan.predicted,
            "prediction_error": plan.stderr, "measured": plan.measured,
            "stderr": plan.measured_stderr, "ratio": plan.predicted / plan.measured,
            "trusted": "yes" if plan.trusted else "no",
        })  # fmt: skip
    return pd.DataFrame(rows)


def mixtures(model: Any) -> pd.DataFrame:
    """Ten mixtures of changes: the sum of predictions, and runs with all of them."""
    path = FOLDER / "mixtures.jsonl"
    rows: Rows = (
        [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    )
    ids = ids_of(model, OTHERS[0], 2 * PROMPT)
    done = {row["mixture"] for row in rows}
    left = {name: list(parts) for name, parts in MIXTURES.items() if name not in done}
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
        rows.append({
            "mixture": name, "predicted": error.value,
            "prediction_error": error.stderr, "measured": run.kl, "stderr": run.stderr["kl"],
            "ratio": error.value / run.kl,
        })  # fmt: skip
        with path.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def uniform_caches(model: Any) -> pd.DataFrame:
    """Plans beside uniform caches in 4 bits that hold as many bytes or more."""
    path = FOLDER / "uniform.jsonl"
    rows: Rows = (
        [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    )
    uniform = {name: al.Quantize.parse(name) for name in ("q4_0", "int4")}
    plans = plans_of_size(model, {name: share_of(one, model) for name, one in uniform.items()})
    for text in OTHERS:
        ids = ids_of(model, text, SHORT)
        for name, one in uniform.items():
            layers = LayerPrecision((one,) * len(plans[name].heads))
            for method, change in (("uniform", Several((layers,), AFTER)), ("plan", plans[name])):
                if any((r["text"], r["cache"], r["method"]) == (text, name, method) for r in rows):
                    continue
                repeats = 1 if method == "uniform" else REPEATS
                run = al.models.evaluate(model, ids, change, repeats=repeats)
                stored = share_of(one, model) if method == "uniform" else share(plans[name])
                rows.append({
                    "text": text, "cache": name, "method": method,
                    "stored of float32, %": 100 * stored, "kl": run.kl,
                    "kl_stderr": run.stderr["kl"], "perplexity": run.perplexity,
                })  # fmt: skip
                with path.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
                print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def share(plan: al.Plan) -> float:
    """Share of float32 bytes that a plan stores."""
    stored, whole = plan.costs()["bytes_stored"]
    return stored / whole


def share_of(precision: al.Quantize, model: Any) -> float:
    """Share of float32 bytes that a uniform cache stores."""
    width = model.model.config.head_dim
    return precision.token_bytes(width, width, 4) / (8 * width)


def plans_of_size(model: Any, shares: dict[str, float]) -> dict[str, al.Plan]:
    """For each share of float32 bytes, the plan of the least loss that stores no more."""
    paths = {name: FOLDER / f"size-{name}.json" for name in shares}
    if not all(path.exists() for path in paths.values()):
        calibration = calibration_of(model, [ids_of(model, PLANNED, SHORT)], NextToken(TARGET))
        targets = [NextToken(kl) for kl in TARGETS]
        plans = make_plans(
            calibration, targets, minimise="bytes_stored", decode=AFTER, complete=False,
            scheme="index",
        )  # fmt: skip
        for name, path in paths.items():
            fits = [plan for plan in plans if share(plan) <= shares[name]]
            min(fits, key=lambda plan: plan.predicted).write(path)
    return {name: al.Plan.read(path) for name, path in paths.items()}


STUDIES = {"joint-plan": joint_plans, "mixtures": mixtures, "uniform-caches": uniform_caches}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    loaded = al.models.load("smollm2", device="cpu")
    write_tables({name: STUDIES[name](loaded) for name in sys.argv[1:] or STUDIES})
