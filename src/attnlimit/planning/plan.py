"""Plans: the cheapest samplers of a family that keep a model's output within a target.

Every head's predicted effect on the output is tabulated over sizes of one family of samplers, and
sizes are chosen so that the whole stays within the target: one for the model, one for each layer
or one for each head. The `Plan` is what terminal, page, file and exports show.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    model_validator,
)

from attnlimit.checks import Array
from attnlimit.constants import LENGTH_RATIO
from attnlimit.errors import BadInput
from attnlimit.files import Damaged, digest, read_json, write_atomically
from attnlimit.models.eviction.rules import EvictionRule, rule_from_dict, rule_to_dict
from attnlimit.models.loading import LoadedModel
from attnlimit.models.passes import unwrap
from attnlimit.picture import Panel, Series
from attnlimit.planning.calibration import architecture_of
from attnlimit.planning.cost import CacheUse, CostModel, Shape
from attnlimit.planning.precision import Quantize, token_bytes
from attnlimit.planning.target import Target, target_of
from attnlimit.result import Pictured, Result, format_pm
from attnlimit.samplers import Sampler
from attnlimit.samplers.spec import parse_sampler, sampler_spec

SCHEMA = "attnlimit.plan/4"


def _matrix(value: Any) -> Array:
    matrix = np.array(value, dtype=float)
    if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():
        raise ValueError("must be a table of finite numbers by layer and head")
    return matrix


def _sampler_rows(value: Any) -> tuple[tuple[Sampler | None, ...], ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError("must be a table of samplers by layer and head")
    return tuple(
        tuple(parse_sampler(cell) if isinstance(cell, str) else cell for cell in row)
        for row in value
    )


def _read_target(value: Any) -> Target:
    if isinstance(value, Target):
        return value
    if not isinstance(value, Mapping) or set(value) != {"name", "value"}:
        raise ValueError("must be an object with name and value")
    return target_of(value["name"], value["value"])


def _write_target(target: Target) -> dict[str, Any]:
    assert target.distance is not None
    return {"name": target.name, "value": target.to_value(target.distance)}


def _read_precision(value: Any) -> Quantize | None:
    return Quantize(**value) if isinstance(value, Mapping) else value


Matrix = Annotated[
    np.ndarray, PlainValidator(_matrix), PlainSerializer(lambda value: value.tolist())
]
SamplerRows = Annotated[
    tuple[tuple[Any, ...], ...],
    PlainValidator(_sampler_rows),
    PlainSerializer(
        lambda rows: [[None if s is None else sampler_spec(s) for s in row] for row in rows]
    ),
]
TargetField = Annotated[Any, PlainValidator(_read_target), PlainSerializer(_write_target)]
RuleField = Annotated[
    Any,
    PlainValidator(
        lambda value: (
            value if value is None or isinstance(value, EvictionRule) else rule_from_dict(value)
        )
    ),
    PlainSerializer(lambda rule: None if rule is None else rule_to_dict(rule)),
]
PrecisionField = Annotated[
    Any,
    PlainValidator(lambda value: None if value is None else tuple(map(_read_precision, value))),
    PlainSerializer(
        lambda layers: (
            None if layers is None else [None if bits is None else bits.spec() for bits in layers]
        )
    ),
]
Count = Annotated[int, Field(gt=0, strict=True)]
Real = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _thresholds(samplers: Iterable[Sampler | None]) -> list[float]:
    """c of the samplers that have one."""
    return [s.threshold for s in samplers if s is not None and s.threshold is not None]


def blame_layers(rounding: Array, most: int = 3) -> str:
    """Where rounding loses most, in words, from losses (2, L) of keys and values by layer."""
    whole = float(rounding.sum()) or 1.0
    by_layer = rounding.sum(0) / whole
    worst = np.argsort(-by_layer)[:most].tolist()
    layers = ", ".join(f"{layer} ({100 * by_layer[layer]:.0f} %)" for layer in worst)
    return f"{100 * float(rounding[0].sum()) / whole:.0f} % by keys; most in layers {layers}"


class Plan(Result, Pictured, BaseModel):
    """Samplers of a model's heads, with the predicted error of its output.

    `read` and `write` a versioned JSON file. The file has a digest of its content, and a plan is
    checked against the model that it is used with.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, strict=True
    )

    target: TargetField
    predicted: Real  # mean over the calibration texts
    stderr: Real  # of that, over the probes
    next_text: Real  # nine of ten other texts should stay below
    measured: Real | None  # by runs on the first calibration text; None from captures
    measured_stderr: Real | None
    trusted: bool
    doubt: str  # reason why it is not trusted
    mean_keys: Real  # read by a query of a head
    mean_visible: Real  # that it sees: the average causal context
    per: Literal["model", "layer", "head"]
    scheme: str
    cost: Literal["read", "bytes_read", "bytes_stored", "milliseconds"]  # what was minimised
    price: Real  # keys that a query of a head reads, bytes of a token, or milliseconds
    dense_price: Real  # the same for dense attention
    tokens: Annotated[tuple[Count, ...], Field(min_length=1, strict=False)]  # of each text
    decode: Count | None  # only the queries of so many last tokens are sampled
    probes: Count
    model: str
    weights: str  # SHA-256, empty if not known
    architecture: dict[str, Count]
    heads: SamplerRows  # by layer; None reads all keys
    evict: RuleField  # eviction rule of the cache, or None
    quantize: PrecisionField = None  # precision of each layer's cache, or None
    rounding: Matrix | None = None  # (2, layers) predicted loss by rounded keys and values
    losses: dict[str, Real] = {}  # predicted loss of each part: keys read, bits, eviction
    number: Real = 4.0  # bytes of a number of the model's own cache
    machine: CostModel | None = None  # speed that decoding is planned for; None without decode
    contributions: Matrix  # (layers, heads) to the predicted error
    keys: Matrix  # (layers, heads) read by a query
    sensitivity: Matrix | None  # (layers, heads) nats a token for a squared error; KL plans
    kv_keys: Matrix | None  # (layers, KV heads) that a query of some head of the group reads

    @model_validator(mode="after")
    def _check_shapes(self) -> Plan:
        shape = (len(self.heads), len(self.heads[0]))
        if 0 in shape or any(len(row) != shape[1] for row in self.heads):
            raise ValueError("samplers are not a table of layers and heads")
        tables = (self.contributions, self.keys, self.sensitivity)
        if any(table is not None and table.shape != shape for table in tables):
            raise ValueError("tables do not have the shape of the samplers")
        known = self.architecture.get("layers"), self.architecture.get("heads")
        if known != shape:
            raise ValueError("the architecture does not have the shape of the samplers")
        if self.quantize is not None and len(self.quantize) != shape[0]:
            raise ValueError("quantize does not have a precision for each layer")
        if self.kv_keys is not None and (
            len(self.kv_keys) != shape[0] or shape[1] % self.kv_keys.shape[1]
        ):
            raise ValueError("kv_keys is not a table of layers and key-value heads")
        return self

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def samplers(self) -> dict[tuple[int, int], Sampler]:
        """Samplers by (layer, head); heads that are not named read all keys."""
        return {
            (layer, head): sampler
            for layer, row in enumerate(self.heads)
            for head, sampler in enumerate(row)
            if sampler is not None
        }

    def check_model(self, model: Any) -> None:
        """Raise BadInput if the plan was made for another model."""
        network, _ = unwrap(model)
        here = architecture_of(network)
        differing = [
            name for name, value in self.architecture.items() if here.get(name, value) != value
        ]
        if differing:
            parts = [f"{self.architecture[n]} {n}, not {here[n]}" for n in differing]
            raise BadInput(
                f"The plan was made for {self.model} with {'; '.join(parts)}; make the plan with "
                "this model."
            )
        loaded = model.weights if isinstance(model, LoadedModel) else ""
        if self.weights and loaded and loaded != self.weights:
            raise BadInput(
                f"The plan was made for {self.model} (weights {self.weights[:12]}...), and this is "
                f"{model.name} ({loaded[:12]}...); make the plan with this model."
            )

    def length_warning(self, tokens: int) -> str:
        """Warning for a text much longer than those of the plan, or nothing."""
        longest = max(self.tokens)
        if tokens <= LENGTH_RATIO * longest:
            return ""
        return (
            f"The plan was made on texts of at most {longest} tokens and is used on {tokens}; its "
            "error grows with the context: plan on texts of this length."
        )

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
        title = f"{self.mean_keys:.1f} of {self.mean_visible:.1f} keys, by layer"
        return Panel(title, "layer", "keys read by a query", series, "linear", "linear")

    @property
    def joint(self) -> bool:
        """Whether keys read, bits and evictions were chosen together."""
        return self.cost in ("bytes_read", "bytes_stored", "milliseconds")

    def headline(self) -> str:
        """Cost and target in one line."""
        return f"{self.model}: {self.priced()} for {self.target.describe(self.target.distance)}"

    def __str__(self) -> str:
        unit = self.target.unit
        ends = sorted({min(self.tokens), max(self.tokens)})
        texts = f"{len(self.tokens)} texts" if len(self.tokens) > 1 else "1 text"
        texts += f" of {' to '.join(map(str, ends))} tokens"
        lines = [
            self.headline(),
            f"  predicted {format_pm(self.predicted, self.stderr)}{unit} on {texts}",
            f"  nine of ten other texts should stay below {self.next_text:.3g}{unit}",
            f"  {self.rule()}",
        ]
        if len(self.losses) > 1:
            lines[3:] = self.knob_lines()
        if self.measured is not None:
            seen = format_pm(self.measured, self.measured_stderr)
            lines[1] += f"; measured {seen}{unit} by a run on the first"
        if self.decode is not None:
            lines.append(f"  for the {self.decode} tokens after a prompt that is read densely")
            levels = self.levels()
            if self.joint:
                fast, dense = self.costs()["milliseconds"]
                if self.cost != "milliseconds" and np.isfinite(fast):
                    lines.append(
                        f"  attention of a token takes {fast:.3g} of {dense:.3g} ms (predicted)"
                    )
            elif levels is not None and self.machine is not None:
                dense, fast = self.milliseconds()
                c = float(np.mean(_thresholds(self.samplers().values())))
                start = self.machine.crossover(self.shape(), c, levels)
                lines.append(
                    f"  attention of a token takes {fast:.3g} ms instead of {dense:.3g} at "
                    f"{max(self.tokens)} tokens (predicted); it pays from {start} tokens"
                )
        if len(self.tokens) == 1 and self.next_text > self.target.distance:
            lines[2] += ": to keep the target there, plan on several texts"
        if not self.trusted:
            lines.append(f"  not trusted: {self.doubt}")
        return "\n".join(lines)

    def knobs(self) -> pd.DataFrame:
        """What each change costs and saves: predicted loss, and bytes if it were left out."""
        evicted = "" if self.evict is None else f"{100 * self.evict.keep:g} % of the prompt kept"
        settings = {"keys read": self.rule(), "eviction": evicted}
        for part, name in enumerate(("key bits", "value bits")):
            settings[name] = self._bits(part)
        own, rows = self.costs(), []
        for name, loss in self.losses.items():
            without = self.costs(without=name)
            saved = {
                f"saves MB {verb}": (without[cost][0] - own[cost][0]) / 1e6
                for verb, cost in (("read", "bytes_read"), ("stored", "bytes_stored"))
            }
            rows.append({"change": name, "loss": loss, **saved, "setting": settings[name]})
        return pd.DataFrame(rows)

    def knob_lines(self) -> list[str]:
        """Return the knobs as a terminal shows them."""
        lines = ["  change       loss     saves MB read, stored  setting"]
        for name, loss, read, stored, setting in self.knobs().itertuples(index=False):
            lines.append(f"  {name:<10s} {loss:>8.2g} {read:>11.3g} {stored:>9.3g}  {setting}")
        if self.rounding is not None:
            lines.append(f"  rounding: {blame_layers(self.rounding)}")
        if self.evict is not None:
            lines.append("  eviction: for text like this; a fact asked for later is lost sooner")
        costs = self.costs()
        (read, all_), (stored, whole) = costs["bytes_read"], costs["bytes_stored"]
        lines.append(
            f"  a token reads {read / 1e6:.3g} of {all_ / 1e6:.3g} MB ({100 * read / all_:.2g} %); "
            f"the cache holds {stored / 1e6:.3g} of {whole / 1e6:.3g} MB "
            f"({100 * stored / whole:.2g} %) at {max(self.tokens)} tokens"
        )
        return lines

    def _bits(self, part: int) -> str:
        """Precisions of keys (0) or values (1), in words."""
        forms = [None if bits is None else bits.formats[part] for bits in self.quantize or ()]
        names = ["not rounded" if form is None else form.label for form in forms]
        counts = {name: names.count(name) for name in sorted(set(names))}
        if len(counts) == 1:
            return f"{names[0]} in every layer"
        parts = [f"{name} in {n} layer{'' if n == 1 else 's'}" for name, n in counts.items()]
        return ", ".join(parts)

    def stored_bits(self) -> float:
        """Bits of a number of the cache, with its scales, on average over layers."""
        shape = self.shape(self.number)
        widths = shape.width, shape.value_width
        layers = self.quantize or (None,) * self.architecture["layers"]
        rows = [
            shape.row_bytes if bits is None else bits.token_bytes(*widths, shape.number)
            for bits in layers
        ]
        return float(8 * np.mean(rows) / sum(widths))

    def costs(
        self, tokens: int | None = None, *, without: str | None = None
    ) -> dict[str, tuple[float, float]]:
        """Bytes read, bytes stored and milliseconds of a decoded token: by the plan, and dense.

        Parameters
        ----------
        tokens : int, optional
            Length of the text; that of the plan's longest by default.
        without : str, optional
            A knob of `losses` that is left out.
        """
        length, shape = max(self.tokens) if tokens is None else tokens, self.shape(self.number)
        layers = self.architecture["layers"]
        decode = min(self.decode or length // 2, length)
        keep = 1.0 if self.evict is None or without == "eviction" else self.evict.keep
        stored = np.full(layers, keep * (length - decode) + decode / 2)
        chosen = list(self.samplers().values())
        sampler = chosen[0] if chosen and without != "keys read" else None
        rows = np.full(layers, shape.row_bytes)
        for layer, bits in enumerate(self.quantize or ()):
            if bits is not None:
                keys, values = bits.formats
                keys = None if without == "key bits" else keys
                values = None if without == "value bits" else values
                widths = shape.width, shape.value_width
                rows[layer] = token_bytes(keys, values, *widths, shape.number)
        use = CacheUse(shape, stored, self.keys.sum(1), rows, sampler, keep < 1)
        whole = np.full(layers, length - decode / 2)
        dense = CacheUse(shape, whole, self.keys.sum(1), np.full(layers, shape.row_bytes), None)
        machine = self.machine or CostModel()
        return {
            "bytes_read": (float(use.bytes_read), float(dense.bytes_read)),
            "bytes_stored": (float(use.bytes_stored), float(dense.bytes_stored)),
            "milliseconds": (float(use.milliseconds(machine)), float(dense.milliseconds(machine))),
        }

    def priced(self) -> str:
        """What was minimised, beside dense attention."""
        share = f"({100 * self.price / self.dense_price:.1f} %)"
        if self.cost in ("bytes_read", "bytes_stored"):
            verb = "a token reads" if self.cost == "bytes_read" else "the cache holds"
            return f"{verb} {self.price / 1e6:.3g} of {self.dense_price / 1e6:.3g} MB {share}"
        if self.cost == "milliseconds":
            times = f"{self.price:.3g} of {self.dense_price:.3g} ms"
            return f"attention of a token takes {times} {share}"
        kind = "keys of its average causal context" if self.target.measure == "kl" else "keys"
        return f"a query reads {self.price:.1f} of {self.dense_price:.1f} {kind} {share}"

    def shape(self, number: float = 4) -> Shape:
        """Attention of one layer, for the cost model; `number` is the bytes of a number."""
        known = self.architecture
        width = known["head_dim"]
        return Shape(known["heads"], known["kv_heads"], width, width, number)

    def milliseconds(self, tokens: int | None = None) -> tuple[float, float]:
        """Predicted time of all attention layers for a decoded token: dense, and by the plan.

        After `tokens`, by default as many as the longest text of the plan had. NaN for samplers
        that `fast_decoding` does not run.
        """
        machine, levels = self.machine or CostModel(), self.levels()
        length = max(self.tokens) if tokens is None else tokens
        thresholds = _thresholds(self.samplers().values())
        if not thresholds or levels is None:
            return machine.milliseconds(self.shape(), length, 1.0)[0], float("nan")
        c = float(np.mean(thresholds))
        each = machine.milliseconds(self.shape(), length, c)
        layers = self.architecture["layers"]
        return layers * each[0], layers * each[levels]

    def levels(self) -> int | None:
        """Levels that `fast_decoding` reads keys with; None if it does not run the plan."""
        chosen = {sampler.levels for sampler in self.samplers().values()}
        return chosen.pop() or None if len(chosen) == 1 else None

    def rule(self) -> str:
        """Samplers in words."""
        chosen = [sampler for row in self.heads for sampler in row]
        names = {"all keys" if sampler is None else sampler.name for sampler in chosen}
        if len(names) == 1:
            return f"{names.pop()}, for every head"
        thresholds = sorted(_thresholds(chosen))
        between = f", c from {thresholds[0]:.3g} to {thresholds[-1]:.3g}" if thresholds else ""
        return f"{self.scheme} with a size for each {self.per}{between}"

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as its file holds it."""
        content = self.model_dump(mode="json")
        return {"schema": SCHEMA, "digest": _digest(content), **content}

    def write(self, path: str | Path) -> Path:
        """Write the plan as JSON."""
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"
        write_atomically(Path(path), text.encode())
        return Path(path)

    @classmethod
    def read(cls, path: str | Path) -> Plan:
        """Read a plan that `write` wrote; anything else is refused."""
        content = read_json(Path(path))
        schema = content.get("schema") if isinstance(content, dict) else None
        if schema != SCHEMA:
            old = isinstance(schema, str) and schema.startswith("attnlimit.")
            what = "a plan of another version" if old else "not a plan"
            raise BadInput(f"{path} is {what} ({SCHEMA} is read); make one with attnlimit plan.")
        stated = content.pop("digest", None)
        del content["schema"]
        try:
            plan = cls.model_validate(content, strict=False)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "its content"
            reason = first["msg"].removeprefix("Value error, ").rstrip(".")
            raise Damaged(f"{path} is damaged: {place}: {reason}; make the plan again.") from None
        except (BadInput, TypeError, ValueError) as error:
            reason = str(error).rstrip(".")
            raise Damaged(f"{path} is damaged: {reason}; make the plan again.") from None
        if stated != _digest(content):
            raise Damaged(
                f"{path} was changed after it was written: its digest does not fit its content; "
                "make the plan again."
            )
        return plan


def _digest(content: Mapping[str, Any]) -> str:
    return digest(json.dumps(content, sort_keys=True, allow_nan=False).encode())
