"""Precision of a cache: keys and values rounded to few bits, and what that does to the output.

To first order in the errors e_j of keys and f_j of values, a probe g of the output moves by

    sum_j <e_j, a_j> + <f_j, b_j>,   a_j = scale sum_q M_qj q_q,   b_j = sum_q P_qj g_q,
    M_qj = P_qj <g_q, v_j - Gamma_q>,

with sums over all query heads that share the key. Beside the mean error of a head's keys, errors of
different keys behave as independent ones, so that the expected square is that of the mean error and
sum_j <e_j, a_j>^2 + <f_j, b_j>^2 of the rest, with the errors that rounding this text makes, or
their variances for stochastic rounding (docs/theory/precision.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.attention import Call
from attnlimit.models.sampled import AttentionStats, sampled_attention
from attnlimit.planning.probes import Accumulator, Change, ErrorTerms, ProbedLayer


def _symmetric(x: Tensor, bits: int, draw: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    most = 2 ** (bits - 1) - 1
    step = (x.abs().amax(-1, keepdim=True) / most).clamp_min(1e-12)
    return draw(x / step).clamp(-most, most) * step, step


def _signed(
    x: Tensor, bits: int, draw: Callable[[Tensor], Tensor], scale: torch.dtype = torch.bfloat16
) -> tuple[Tensor, Tensor]:
    """Rounding that has the number of largest size as its lowest code: values of fast decoding."""
    half = 2 ** (bits - 1)
    widest = x.gather(-1, x.abs().argmax(-1, keepdim=True))
    step = (-widest / half).to(scale).float()
    step = torch.where(step == 0, torch.full_like(step, 1e-12), step)
    return draw(x / step).clamp(-half, half - 1) * step, step.abs()


def _llama(x: Tensor, bits: int, draw: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Rounding of llama.cpp's q4_0 and q5_0."""
    return _signed(x, bits, draw, torch.half)


def _codes(x: Tensor, bits: int, draw: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Rounding to the middles of 2^bits steps, as keys of fast decoding are."""
    half = 2 ** (bits - 1)
    most = half - 0.5 if bits == 8 else half - 1 / 32
    step = (x.abs().amax(-1, keepdim=True) / most).clamp_min(1e-12)
    return (draw(x / step - 0.5).clamp(-half, half - 1) + 0.5) * step, step


def _affine(x: Tensor, bits: int, draw: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    low, high = x.aminmax(dim=-1, keepdim=True)
    step = ((high - low) / (2**bits - 1)).clamp_min(1e-12)
    return draw((x - low) / step) * step + low, step


Rule = Callable[[Tensor, int, Callable[[Tensor], Tensor]], tuple[Tensor, Tensor]]
RULES: dict[str, Rule] = {
    "symmetric": _symmetric, "llama": _llama, "signed": _signed, "codes": _codes, "affine": _affine,
}  # fmt: skip


@dataclass(frozen=True)
class Format:
    """How numbers of a cache are rounded: bits, and the group of numbers that share a scale."""

    name: str
    bits: int
    group: int | None
    kind: str  # symmetric, llama, affine, codes, signed or fp8
    scale_bytes: int = 2  # of a scale, or of a smallest value

    @property
    def label(self) -> str:
        """Name that other programs know, or the bits."""
        return f"{self.bits} bits" if self.kind in ("codes", "signed") else self.name

    def rounded(self, x: Tensor, draw: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Rounded numbers and the steps between two of them, along the last axis."""
        if self.kind == "fp8":
            near = x.clamp(-448, 448).to(torch.float8_e4m3fn).float()
            return near, torch.zeros_like(x)
        size = x.shape[-1] if self.group is None else self.group
        rule = RULES[self.kind]
        near, step = rule(x.unflatten(-1, (-1, size)), self.bits, draw)
        return near.flatten(-2), step.expand(*near.shape).flatten(-2)

    def row_bytes(self, width: int) -> float:
        """Bytes of a row of numbers with its scales."""
        if self.kind == "fp8":
            return float(width)
        scales = self.scale_bytes * (2 if self.kind == "affine" else 1)
        return width * self.bits / 8 + scales * width / (self.group or width)


FORMATS = {
    "q8_0": Format("q8_0", 8, 32, "symmetric"),
    "q5_0": Format("q5_0", 5, 32, "llama"),
    "q4_0": Format("q4_0", 4, 32, "llama"),
    "int8": Format("int8", 8, 64, "affine"),
    "int4": Format("int4", 4, 64, "affine"),
    "fp8": Format("fp8", 8, None, "fp8"),
    "row8": Format("row8", 8, None, "codes", 4),
    "row4": Format("row4", 4, None, "codes", 4),
    "block8": Format("block8", 8, 32, "codes"),
    "block4": Format("block4", 4, 32, "codes"),
}
"""Formats of llama.cpp (q8_0, q5_0, q4_0), of transformers' quantised caches (int8, int4 in groups
of 64), e4m3 without a scale, and those of fast decoding (row8 and row4 with one scale for a key and
the mean key taken out; block8, block4), whose values have a code for zero."""


@dataclass(frozen=True)
class Quantize:
    """A cache that holds keys and values in few bits.

    Parameters
    ----------
    keys, values : int, str or None
        Bits from 2 to 8; a format that others use, such as "q8_0" or "q4_0" of llama.cpp, "int8" or
        "int4" of transformers, "fp8"; or None for what is not rounded.
    group : int or None
        Numbers that share a scale; None for a whole row.
    center : bool
        Take the mean key of the text out before rounding: it moves all scores of a query alike.
    per : "row" or "channel"
        Whether a scale belongs to a key, or to a dimension of all keys.
    rounding : "nearest" or "stochastic"

    Formats have a group of their own, and those of other programs no centre.
    """

    keys: int | str | None = 8
    values: int | str | None = 4
    group: int | None = 32
    center: bool = True
    per: str = "row"
    rounding: str = "nearest"

    def __post_init__(self) -> None:
        checks.one_of(self.per, ("row", "channel"), "per")
        checks.one_of(self.rounding, ("nearest", "stochastic"), "rounding")
        if self.group is not None:
            checks.count(self.group, "group", smallest=2)
        if self.keys is None and self.values is None:
            raise BadInput("Nothing is rounded: give keys, values or both.")
        for what, given in (("keys", self.keys), ("values", self.values)):
            self._format(what, given)

    @classmethod
    def parse(cls, text: str) -> Quantize:
        """Read "q4_0", "q8_0/q4_0" for keys and values, or bits such as "8/4"."""
        parts = [part.strip() for part in text.split("/")]
        if not 1 <= len(parts) <= 2:
            raise BadInput(f"A precision is KEYS or KEYS/VALUES, such as q8_0/q4_0, got {text!r}.")
        given = [int(part) if part.isdigit() else part for part in (parts * 2)[:2]]
        return cls(keys=given[0], values=given[1])

    def _format(self, what: str, given: int | str | None) -> Format | None:
        if given is None:
            return None
        if isinstance(given, str):
            if given not in FORMATS:
                known = ", ".join(FORMATS)
                raise BadInput(
                    f"{what} must be bits from 2 to 8, or one of {known}; got {given!r}."
                )
            return FORMATS[given]
        if isinstance(given, bool) or not isinstance(given, int) or not 2 <= given <= 8:
            raise BadInput(f"{what} must be 2 to 8 bits, got {given!r}.")
        return Format(f"{given} bits", given, self.group, "symmetric")

    @property
    def formats(self) -> tuple[Format | None, Format | None]:
        """Formats of keys and values."""
        keys, values = self._format("keys", self.keys), self._format("values", self.values)
        if values is not None and values.kind == "codes":
            values = replace(values, kind="signed")
        return keys, values

    @property
    def name(self) -> str:
        named = ["16 bits" if each is None else each.name for each in self.formats]
        return f"keys in {named[0]}, values in {named[1]}"

    def spec(self) -> dict[str, Any]:
        """Return the fields, as plan files hold them."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def rounded(
        self, call_keys: Tensor, call_values: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Keys and values (..., N, d) as the cache holds them."""
        keys, values = self._both(call_keys, call_values, generator)
        return keys[0], values[0]

    def _both(
        self, keys: Tensor, values: Tensor, generator: torch.Generator | None
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Rounded keys and values, each with the steps of rounding."""
        centre = keys.mean(-2, keepdim=True) if self._centred else torch.zeros(())
        near, step = self._side(self.formats[0], keys - centre, generator)
        return (near + centre, step), self._side(self.formats[1], values, generator)

    @property
    def _centred(self) -> bool:
        own = not isinstance(self.keys, str) or self.keys in ("row8", "row4")
        return self.center and own and self.keys is not None

    def _side(
        self, form: Format | None, x: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        if form is None:
            return x, torch.zeros_like(x)
        size = x.shape[-1]
        if form.group is not None and size % form.group and self.per == "row":
            raise BadInput(
                f"Groups of {form.group} do not divide heads of {size} dimensions; give another "
                "group, or None for one scale a row."
            )

        def draw(t: Tensor) -> Tensor:
            if self.rounding == "nearest":
                return torch.round(t)
            noise = torch.rand(t.shape, generator=generator, dtype=t.dtype)
            return torch.floor(t + noise)

        if self.per == "row" or form.kind == "fp8":
            return form.rounded(x, draw)
        near, step = replace(form, group=None).rounded(x.transpose(-1, -2), draw)
        return near.transpose(-1, -2), step.transpose(-1, -2)

    def token_bytes(self, width: int, value_width: int, number: float) -> float:
        """Bytes of a key and its value in the cache."""
        return token_bytes(*self.formats, width, value_width, number)


def token_bytes(
    keys: Format | None, values: Format | None, width: int, value_width: int, number: float
) -> float:
    """Bytes of a key and its value; None has `number` bytes for each of its numbers."""
    size = width * number if keys is None else keys.row_bytes(width)
    return size + (value_width * number if values is None else values.row_bytes(value_width))


@dataclass(frozen=True)
class LayerPrecision(Change):
    """A precision of every layer, or one for each, None where nothing is rounded."""

    layers: Quantize | tuple[Quantize | None, ...]
    prompt: int | None = None  # tokens that are read before the cache is rounded
    shares_passes = True

    @property
    def name(self) -> str:
        chosen = {None if one is None else one.name for one in self._chosen}
        return str(chosen.pop()) if len(chosen) == 1 else "a precision for each layer"

    @property
    def draws(self) -> bool:  # type: ignore[override]
        """Whether rounding is random."""
        return any(one is not None and one.rounding == "stochastic" for one in self._chosen)

    @property
    def _chosen(self) -> tuple[Quantize | None, ...]:
        return (self.layers,) if isinstance(self.layers, Quantize) else self.layers

    def bound_to(self, network: Any, tokens: int) -> LayerPrecision:
        depth = int(network.config.num_hidden_layers)
        if isinstance(self.layers, Quantize):
            return replace(self, layers=self._chosen * depth)
        if len(self.layers) != depth:
            raise BadInput(
                f"There are precisions for {len(self.layers)} layers, and the model has {depth}."
            )
        return self

    def accumulator(
        self, network: Any, tokens: int, probes: int, others: Sequence[LayerPrecision] = ()
    ) -> PrecisionTerms:
        return PrecisionTerms([one._chosen for one in (self, *others)], self.prompt or 0)

    def rounding(self, seed: int) -> Callable[[Call], Call]:
        """Return the function that rounds a call's keys and values."""

        def rounded(call: Call) -> Call:
            precision = self._chosen[call.layer]
            if precision is None or (self.prompt is not None and call.whole):
                return call
            generator = torch.Generator().manual_seed(seed * 1009 + call.layer)
            key, value = precision.rounded(call.key, call.value, generator)
            return replace(call, key=key, value=value)

        return rounded

    @contextmanager
    def active(self, model: Any, seed: int) -> Iterator[AttentionStats]:
        rounded, sizes = self.rounding(seed), {}

        def observe(call: Call) -> Call:
            width, value_width = call.key.shape[-1], call.value.shape[-1]
            number = call.key.element_size()
            dense = (width + value_width) * number
            precision = self._chosen[call.layer]
            held = dense if precision is None else precision.token_bytes(
                width, value_width, number
            )  # fmt: skip
            rows = call.key.shape[1] * call.key.shape[2]
            sizes[call.layer] = rows * held, rows * dense
            return rounded(call)

        with sampled_attention(model, {}, seed=seed, before=observe) as stats:
            yield stats
        stats.cache_bytes, stats.dense_bytes = (
            int(sum(size[place] for size in sizes.values())) for place in (0, 1)
        )


class PrecisionTerms(Accumulator):
    """Effects of rounded keys and values, layer after layer, for S tables of precisions at once.

    With `start`, only queries from that position on read what is rounded.
    """

    def __init__(self, tables: Sequence[Sequence[Quantize | None]], start: int = 0) -> None:
        self.tables, self.start = [tuple(table) for table in tables], start
        self.parts: dict[int, list[Array]] = {}  # (S, 2, H_kv, K) of keys and values
        self.tokens = 0

    def add(self, layer: ProbedLayer) -> None:
        number, groups = layer.call.layer, layer.call.key.shape[1]
        chosen = [table[number] for table in self.tables]
        self.tokens = layer.call.key.shape[2]
        squares = np.zeros((len(chosen), 2, groups, len(layer.gradients)))
        if any(chosen):
            of_keys, of_values = sensitivities(layer, self.start)
            for place, precision in enumerate(chosen):
                if precision is not None:
                    squares[place] = rounding_squares(precision, layer.call, of_keys, of_values)
        self.parts.setdefault(number, []).append(squares)

    def squares(self) -> Array:
        """Expected squares along the probes, (S, 2, L, H_kv, K): of keys and of values."""
        by_layer = [np.concatenate(self.parts[layer], axis=-1) for layer in sorted(self.parts)]
        return np.stack(by_layer, axis=2)

    def terms(self, index: int = 0) -> ErrorTerms:
        squares = self.squares()[index]
        variance = squares.sum(0)
        keys = np.full(variance.shape[:2], float(self.tokens))
        parts = {"keys": squares[0].mean(-1), "values": squares[1].mean(-1)}
        return ErrorTerms(variance, np.zeros_like(variance), keys, float(self.tokens), parts=parts)


def sensitivities(layer: ProbedLayer, start: int = 0) -> tuple[Tensor, Tensor]:
    """Derivatives of each probe by keys and values, (K, H_kv, N, d) and (K, H_kv, N, d_v).

    They are those of queries from position `start` on.
    """
    call, (probes, heads, _, width) = layer.call, layer.gradients.shape
    size, groups = call.key.shape[2], call.key.shape[1]
    of_keys = layer.gradients.new_zeros(probes, heads, size, call.key.shape[3])
    of_values = layer.gradients.new_zeros(probes, heads, size, width)
    for block in layer.blocks(start=start):
        seen = block.weights.shape[-1]
        moved = block.weights * block.along
        if call.softcap is not None:
            slope = 1 - (block.scores.clamp_min(-call.softcap) / call.softcap).square()
            moved = moved * slope
        of_keys[:, :, :seen] += moved.transpose(2, 3) @ block.products.query
        gradients = layer.gradients[:, :, block.rows]
        of_values[:, :, :seen] += block.weights.transpose(1, 2) @ gradients
    return (
        of_keys.unflatten(1, (groups, -1)).sum(2),
        of_values.unflatten(1, (groups, -1)).sum(2),
    )


def rounding_squares(precision: Quantize, call: Call, of_keys: Tensor, of_values: Tensor) -> Array:
    """Expected squares of what rounding moves each probe by, (2, H_kv, K): keys and values."""
    given = call.key[0], call.value[0]
    both = precision._both(*given, torch.Generator().manual_seed(0))
    rows = []
    for x, (near, step), derivative in zip(given, both, (of_keys, of_values), strict=True):
        if precision.rounding == "stochastic":
            square = (step.square() / 6 * derivative.square()).sum((-1, -2))
        else:
            mean = (near - x).mean(-2, keepdim=True)  # that of all keys of a head
            common = (mean * derivative).sum((-1, -2))
            moved = ((near - x - mean) * derivative).sum(-1)  # (K, H_kv, N)
            square = common.square() + torch.stack([
                _sum_equal(own, moved[:, head]).square().sum(-1) for head, own in enumerate(x)
            ], dim=1)  # fmt: skip
        rows.append(square.double().T.numpy())
    return np.stack(rows)


def _sum_equal(rows: Tensor, values: Tensor) -> Tensor:
    """Sums of values (K, N) over equal rows (N, d).

    Equal rows, such as a first layer's values of one token, are rounded alike, so that their
    effects add up before they are squared.
    """
    _, member = torch.unique(rows, dim=0, return_inverse=True)
    sums = values.new_zeros(len(values), int(member.max()) + 1)
    return sums.index_add_(1, member, values)
