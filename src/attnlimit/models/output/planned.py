"""What was planned for a model's output? Samplers by head, what they promise, and their file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.files import Damaged, read_json, write_atomically
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result
from attnlimit.samplers import Sampler, Threshold
from attnlimit.samplers.spec import parse_sampler, sampler_spec

SCHEMA = "attnlimit.output-plan/3"
OLD_SCHEMAS = ("attnlimit.output-plan/1", "attnlimit.output-plan/2")
COSTS = ("read", "bytes", "stored")
WORDS = {"kl": "KL", "cosine_loss": "1 - cosine"}
UNITS = {"kl": " nats", "cosine_loss": ""}


@dataclass(frozen=True, eq=False)
class OutputPlan(Result, Pictured):
    """The cheapest samplers of a family that keep a model's output within a target."""

    measure: str  # "kl" or "cosine_loss"
    target: float
    predicted: float  # mean over the texts it was made on
    stderr: float  # of that, over the probes
    next_text: float  # what nine of ten next texts should stay below
    mean_keys: float  # read by a query of a head
    mean_visible: float  # that it sees
    per: str
    scheme: str
    tokens: tuple[int, ...]  # of each text
    probes: int
    model: str
    weights: str  # SHA-256 of the weights, empty if not known
    trusted: bool  # whether the target lies where second order holds
    heads: tuple[tuple[Sampler | None, ...], ...]  # by layer; None reads all keys
    contributions: Array  # (layers, heads) to the predicted error
    keys: Array  # (layers, heads) read by a query
    cost: str  # what was made small: "read", "bytes" or "stored"
    price: float  # keys of a head read or stored for a query, or bytes that a token moves
    dense_price: float  # the same for dense attention
    sensitivity: Array | None  # (layers, heads) nats a token for a squared error; KL plans
    kv_keys: Array | None  # (layers, KV heads) that a query of some head of the group reads

    def samplers(self) -> dict[tuple[int, int], Sampler]:
        """Samplers by (layer, head); heads that are not named read all keys."""
        return {
            (layer, head): sampler
            for layer, row in enumerate(self.heads)
            for head, sampler in enumerate(row)
            if sampler is not None
        }

    def to_frame(self) -> pd.DataFrame:
        """One row for each head."""
        layers, heads = self.keys.shape
        return pd.DataFrame(
            {
                "layer": np.repeat(np.arange(layers), heads),
                "head": np.tile(np.arange(heads), layers),
                "sampler": ["all keys" if s is None else s.name for row in self.heads for s in row],
                "contribution": self.contributions.ravel(),
                "mean_keys": self.keys.ravel(),
            }
        )

    def panel(self) -> Panel:
        """Keys that a query reads in each layer: its mean head, and the range of its heads."""
        layers = np.arange(len(self.keys))
        mean, low, high = self.keys.mean(axis=1), self.keys.min(axis=1), self.keys.max(axis=1)
        series = [
            Series(layers, mean, "line", "mean head", "heads"),
            Series(layers, mean, "band", "all heads", "heads", None, low, high),
        ]
        title = f"{self.mean_keys:.1f} of {self.mean_visible:.1f} keys: where they are read"
        return Panel(title, "layer", "keys read by a query", series, "linear", "linear")

    def __str__(self) -> str:
        ends = sorted({min(self.tokens), max(self.tokens)})
        texts = f"{len(self.tokens)} texts" if len(self.tokens) > 1 else "1 text"
        texts += f" of {' to '.join(map(str, ends))} tokens"
        unit = UNITS[self.measure]
        lines = [
            f"{self.model}: {self.priced()} for {WORDS[self.measure]} {self.target:.3g}{unit}",
            f"  predicted {self.predicted:.3g} +- {self.stderr:.1g}{unit} on {texts}",
            f"  nine of ten other texts should stay below {self.next_text:.3g}{unit}",
            f"  {self._sizes()}",
        ]
        if len(self.tokens) == 1 and self.next_text > self.target:
            lines[2] += ": to keep the target there, plan on several texts"
        if not self.trusted:
            lines.append("  the target is beyond where predictions hold; measure it: try_samplers")
        return "\n".join(lines)

    def priced(self) -> str:
        """What was made small, and to how much of what dense attention has."""
        share = f"({100 * self.price / self.dense_price:.1f} %)"
        if self.cost == "bytes":
            few, all_ = self.price / 1e6, self.dense_price / 1e6
            return f"a token moves {few:.3g} of {all_:.3g} MB of keys and values {share}"
        what = "reads" if self.cost == "read" else "needs stored"
        return f"a query {what} {self.price:.1f} of {self.dense_price:.1f} keys {share}"

    def _sizes(self) -> str:
        chosen = [sampler for row in self.heads for sampler in row]
        names = {"all keys" if sampler is None else sampler.name for sampler in chosen}
        if len(names) == 1:
            return f"{names.pop()}, for every head"
        thresholds = sorted(s.c for s in chosen if isinstance(s, Threshold))
        between = f", c from {thresholds[0]:.3g} to {thresholds[-1]:.3g}" if thresholds else ""
        return f"{self.scheme} with a size for each {self.per}{between}"

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON holds it."""
        specs = [[None if s is None else sampler_spec(s) for s in row] for row in self.heads]
        return {
            "schema": SCHEMA,
            **{name: getattr(self, name) for name in _NUMBERS | _TEXTS},
            "probes": self.probes,
            "trusted": self.trusted,
            "tokens": list(self.tokens),
            "samplers": specs,
            "contributions": self.contributions.tolist(),
            "keys": self.keys.tolist(),
            **{name: _listed(getattr(self, name)) for name in _PERHAPS},
        }

    def write(self, path: str | Path) -> Path:
        """Write the plan as JSON."""
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"
        write_atomically(Path(path), text.encode())
        return Path(path)

    @classmethod
    def read(cls, path: str | Path) -> OutputPlan:
        """Read a plan that `write` wrote; anything else is refused."""
        content = read_json(Path(path))
        if not isinstance(content, dict) or content.get("schema") not in (SCHEMA, *OLD_SCHEMAS):
            raise BadInput(
                f"{path} is not a plan of schema {SCHEMA}; make one: attnlimit plan --budget "
                "plan.json, or plan_output in Python."
            )
        try:
            return cls(**_checked(_renewed(content)))
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(f"{path} is damaged: {error}.") from None


_NUMBERS = dict.fromkeys(
    (
        "target", "predicted", "stderr", "next_text", "mean_keys", "mean_visible", "price",
        "dense_price",
    ),
    float,
)  # fmt: skip
_PERHAPS = ("sensitivity", "kv_keys")
_TEXTS = dict.fromkeys(("measure", "per", "cost", "scheme", "model", "weights"), str)


def _renewed(content: dict[str, Any]) -> dict[str, Any]:
    """A plan of an older schema as one of this: the first two knew nothing of shared keys.

    The first knew one cost, and nothing of errors while they are made.
    """
    if content["schema"] == OLD_SCHEMAS[0]:
        read = {"price": content.get("mean_keys"), "dense_price": content.get("mean_visible")}
        content = {**content, "cost": "read", **read, "sensitivity": None}
    return content if content["schema"] == SCHEMA else {**content, "kv_keys": None}


def _listed(table: Array | None) -> list[Any] | None:
    return None if table is None else table.tolist()


def _checked(content: dict[str, Any]) -> dict[str, Any]:
    known = {*_NUMBERS, *_TEXTS, "schema", "probes", "trusted", "tokens", "samplers"}
    known |= {"contributions", "keys", *_PERHAPS}
    if set(content) != known:
        odd = sorted(set(content) ^ known)
        raise ValueError(f"it has other fields than a plan: {', '.join(odd)}")
    for name, kind in {**_NUMBERS, **_TEXTS, "probes": int, "trusted": bool}.items():
        value = content[name]
        if not (type(value) is kind or (kind is float and type(value) is int)):
            raise ValueError(f"{name} is {value!r}")
    if content["measure"] not in WORDS:
        raise ValueError(f"measure is {content['measure']!r}")
    if content["cost"] not in COSTS:
        raise ValueError(f"cost is {content['cost']!r}")
    tokens = content["tokens"]
    if not isinstance(tokens, list) or not tokens or not all(type(n) is int for n in tokens):
        raise ValueError(f"tokens is {tokens!r}")
    heads = tuple(
        tuple(None if spec is None else parse_sampler(spec) for spec in row)
        for row in content["samplers"]
    )
    shape = (len(heads), len(heads[0]) if heads else 0)
    names = ["contributions", "keys", *(name for name in _PERHAPS if content[name])]
    tables = {name: np.array(content[name], dtype=float) for name in names}
    if 0 in shape or any(len(row) != shape[1] for row in heads):
        raise ValueError("its samplers are not a table of layers and heads")
    if any(table.shape != shape for name, table in tables.items() if name != "kv_keys"):
        raise ValueError("its tables do not have the shape of its samplers")
    shared = tables.get("kv_keys", np.zeros((shape[0], 1)))
    if shared.ndim != 2 or len(shared) != shape[0] or not shared.size or shape[1] % shared.shape[1]:
        raise ValueError("its kv_keys are not a table of layers and key-value heads")
    kept = {name: content[name] for name in (*_NUMBERS, *_TEXTS, "probes", "trusted")}
    unknown = dict.fromkeys(_PERHAPS)
    return {**unknown, **kept, "tokens": tuple(tokens), "heads": heads, **tables}
