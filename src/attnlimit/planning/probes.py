"""Backpropagate random projections of a model's output to the attention output of each layer.

One forward pass keeps every layer's attention output in the graph; one backward pass from a scalar
is one probe. A layer's gradients are handed on when the last of a group of probes reaches it, so
that memory is that of one pass and of a few gradients. A capture can keep the gradients in files,
written layer by layer, from which plans are made without the model.

Changes of a model's attention are predicted from probes, and run in the model. A change is one
class that extends `Change` with two methods.

- `accumulator` returns an `Accumulator`, which is given every layer of the dense model with the
  gradients of the output at its attention (`ProbedLayer`: queries, keys, values, attention P and
  gradients, in blocks of queries) and returns `ErrorTerms`: for each head and probe g, the variance
  and the mean of <g, error>, summed over queries.
- `active` makes a model run with the change inside a `with` block.

`output_error`, `evaluate` and the planner take any change; predicted errors of several changes add.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.attention import (
    Call,
    attend_dense,
    attention_as,
    call_products,
    check_calls,
    grouped,
)
from attnlimit.models.captured import Captured, OutputGradients, Probes
from attnlimit.models.captures import Capture, call_of, layer_of, open_capture
from attnlimit.models.eviction.context import evictable_layers
from attnlimit.models.loading import predicts_tokens
from attnlimit.models.passes import Encoded, encode, run, unwrap
from attnlimit.models.sampled import AttentionStats
from attnlimit.models.store import NAMES, AlreadyWritten, CaptureWriter, Place, mapped, rows_of
from attnlimit.planning.target import Target, choose_target
from attnlimit.samplers import Products

GROUP = 8
"""Probes whose gradients are held at a time."""
BLOCK = 1 << 22
"""Products of a gradient and a value held at a time."""
PLAIN_INPUTS = ("input_ids", "attention_mask")
SPOOL = "gradients.partial"
"""Folder, in the capture's, of gradients that wait for those of the other probes."""


@dataclass(frozen=True, eq=False)
class ProbeRun:
    """Numbers of a pass with probes."""

    scale: float  # of E <g, e>^2
    limit: float  # of second order
    tokens: int
    read: Tensor  # what the target takes from the dense model's output


@dataclass(frozen=True, eq=False)
class QueryBlock:
    """Some queries of a layer, the keys they see, and the gradients at their outputs."""

    rows: slice  # of the queries, in the layer
    queries: Tensor  # (R,) positions among the keys
    products: Products  # of queries and keys, for samplers that look at them
    scores: Tensor  # (H, R, N), -inf where a key is not visible
    weights: Tensor  # (H, R, N) attention P
    values: Tensor  # (H, N, d_v)
    gradients: Tensor  # (K, H, R, d_v)
    along: Tensor  # (K, H, R, N) <g, v_j - Gamma>


@dataclass(frozen=True, eq=False)
class ProbedLayer:
    """One layer of the dense model with the gradients of a group of probes at its outputs."""

    call: Call  # queries, keys, values and mask of the layer
    gradients: Tensor  # (K, H, N, d_v)
    group: slice  # which of all probes these are

    @property
    def first(self) -> bool:
        """Whether these are the first probes of the layer; counts of keys are made once."""
        return self.group.start == 0

    def blocks(self, *, trim: bool = True, start: int = 0, every: int = 1) -> Iterator[QueryBlock]:
        """Blocks of queries from `start` on, small enough for memory; one of `every` queries.

        With `trim`, keys that no query of a block sees are left out; some samplers need them.
        """
        call, (probes, heads, length) = self.call, self.gradients.shape[:3]
        size = call.key.shape[2]
        step = max(1, min(64 if trim else size, BLOCK // (probes * heads * size)))
        for low in range(start, length, step * every):
            rows = slice(low, min(low + step * every, length), every)
            part = call.up_to(rows) if trim else call
            products, values = call_products(part, rows), grouped(part.value[0], heads)
            scores = products.exact()
            weights = torch.softmax(scores, -1)
            gradients = self.gradients[:, :, rows]
            along = gradients @ values.transpose(1, 2)
            along -= (weights * along).sum(-1, keepdim=True)
            yield QueryBlock(
                rows, call.places(rows), products, scores, weights, values, gradients, along
            )


Reduce = Callable[[ProbedLayer], None]
"""Takes every layer with a group of gradients, last layer first."""


class Receiver:
    """Receives the layers of a forward pass and their gradients, as they come."""

    def on_layer(self, call: Call) -> None:
        """Take a layer of the forward pass, in the model's own precision."""

    def on_output(self, run: ProbeRun) -> None:
        """Take the numbers of the forward pass."""

    def on_gradient(self, call: Call, number: int, gradient: Tensor) -> None:
        """Take the gradient (H, N, d_v) of one probe at a layer's outputs."""


def probe(
    network: Any,
    encoded: Encoded,
    target: Target,
    probes: int,
    seed: int,
    reduce: Reduce | Receiver,
    start: int = 0,
    prompt: Prompt | None = None,
) -> ProbeRun:
    """Run one forward pass and `probes` backward ones, and `reduce` every layer's gradients.

    Gradients are those of queries from `start` on, and zero before. `prompt` are the tokens before
    them, if they were read already. A `Receiver` takes calls and gradients as they come.
    """
    receiver = reduce if isinstance(reduce, Receiver) else _Grouped(probes, reduce)
    generator = torch.Generator().manual_seed(seed)
    root = torch.zeros((), requires_grad=True)
    number = 0
    if prompt is None and start:
        prompt = read_prompt(network, encoded, min(start, target.first))
    skipped = 0 if prompt is None else prompt.tokens
    target = target.from_position(target.first - skipped) if skipped else target

    def attention(call: Call) -> Tensor:
        single = call.precise()
        output = attend_dense(single) + root.to(single.query.dtype)
        detached = replace(
            call, query=call.query.detach(), key=call.key.detach(), value=call.value.detach()
        )
        if prompt is not None:
            detached = prompt.whole(detached)

        def hook(grad: Tensor) -> None:
            own = torch.nn.functional.pad(grad[0].detach(), (0, 0, skipped, 0))
            receiver.on_gradient(detached, number, own)

        receiver.on_layer(detached)
        output.register_hook(hook)
        return output

    with _frozen(network), torch.inference_mode(False), torch.enable_grad():
        with attention_as(network, attention, precise=False) as session:
            outputs = run(network, encoded, None if prompt is None else prompt.copied())
        check_calls(network, session.calls)
        read = target.read(outputs)
        if not read.requires_grad:
            raise BadInput(
                f"No gradient reaches the output of {type(network).__name__}: load the model in "
                "float32, not quantised, or give a target that is differentiable."
            )
        if not torch.isfinite(read).all():
            raise BadInput(
                "The model's output contains NaN or infinite numbers on this text; load it in "
                "float32."
            )
        numbers = target.scale(read), target.limit(read)
        result = ProbeRun(*numbers, skipped + len(outputs.hidden), read.detach())
        receiver.on_output(result)
        for number, scalar in enumerate(target.probes(read, probes, generator)):
            torch.autograd.grad(scalar, root, retain_graph=number + 1 < probes)
    return result


@dataclass(frozen=True, eq=False)
class Prompt:
    """A prompt that was read without gradients."""

    cache: Any
    queries: dict[int, Tensor]  # by layer, (1, H, n, d)

    @property
    def tokens(self) -> int:
        """Tokens of the prompt."""
        return int(next(iter(self.queries.values())).shape[2])

    def copied(self) -> Any:
        """Return the cache, to be read on from; it shares the prompt's keys and values."""
        cache = copy(self.cache)
        cache.layers = [copy(layer) for layer in cache.layers]
        return cache

    def whole(self, call: Call) -> Call:
        """Return a call of later queries with those of the prompt before them."""
        before = self.queries[call.layer]
        return replace(call, query=torch.cat([before, call.query], 2), offset=0)


def read_prompt(network: Any, encoded: Encoded, tokens: int) -> Prompt | None:
    """Read the first tokens of a text; None where its rest cannot be read from a plain cache.

    Its rest is then run as often as needed; gradients of the prompt are of no use.
    """
    if tokens < 1 or encoded.keep is not None or set(encoded.inputs) > {*PLAIN_INPUTS}:
        return None
    if not predicts_tokens(network):
        return None
    queries: dict[int, Tensor] = {}

    def attention(call: Call) -> Tensor:
        queries[call.layer] = call.query
        return attend_dense(call)

    ids = encoded.inputs["input_ids"][:, :tokens]
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        attention_as(network, attention, precise=False),
    ):
        cache = network(ids, use_cache=True, logits_to_keep=1).past_key_values
    layers = getattr(cache, "layers", [])
    plain = {type(layer).__name__ for layer in layers} == {"DynamicLayer"}
    return Prompt(cache, queries) if plain and len(layers) == len(queries) else None


class _Grouped(Receiver):
    """Hands on the gradients of a group of probes at a layer, when the last has reached it."""

    def __init__(self, probes: int, reduce: Reduce) -> None:
        self.groups, self.reduce = list(groups_of(probes)), reduce
        self.gathered: dict[int, list[Tensor]] = {}

    def on_gradient(self, call: Call, number: int, gradient: Tensor) -> None:
        group = self.groups[number // GROUP]
        self.gathered.setdefault(call.layer, []).append(gradient)
        if number + 1 == group.stop:
            gradients = torch.stack(self.gathered.pop(call.layer))
            self.reduce(ProbedLayer(call.precise(), gradients, group))


def groups_of(probes: int) -> Iterator[slice]:
    """Probes whose gradients are held together."""
    for start in range(0, probes, GROUP):
        yield slice(start, min(start + GROUP, probes))


@contextmanager
def _frozen(network: Any) -> Iterator[None]:
    """Leave the weights out of the graph: only attention outputs are differentiated."""
    before = [(weight, weight.requires_grad) for weight in network.parameters()]
    try:
        for weight, _ in before:
            weight.requires_grad_(False)
        yield
    finally:
        for weight, was in before:
            weight.requires_grad_(was)


def capture_sensitivities(
    model: Any,
    text: str | Sequence[int] | Tensor | Mapping[str, Tensor],
    folder: str | Path,
    *,
    probes: int = 4,
    output: str | None = None,
    seed: int = 0,
    about: Mapping[str, Any] | None = None,
) -> Capture:
    """Capture every layer to a folder, with the output's gradients at each head.

    A plan for the model's output can then be made from the folder alone, the same as with the
    model and the same probes and seed.

    Parameters
    ----------
    model, text, folder, about
        As for `attnlimit.models.capture`.
    probes : int
        Backward passes, at least 2.
    output : {"kl", "cosine"}, optional
        Next tokens (the default of causal models) or embedding.
    seed : int
        Seed of the random output projections.
    """
    encoded = encode(model, text)
    encoded.source.update(about or {})
    place = Path(folder).expanduser()
    network, _ = unwrap(model)
    target = choose_target(network, output)
    count = checks.count(probes, "probes", smallest=2)
    checks.one_of(target.name, ("kl", "cosine"), "output of a capture")
    stated = Probes(target.name, count, checks.count(seed, "seed", smallest=0))
    depth = int(network.config.num_hidden_layers)
    writer = CaptureWriter(place, encoded, depth, range(depth), stated)
    spool = place / SPOOL
    try:
        with suppress(AlreadyWritten):
            probe(network, encoded, target, count, stated.seed, _Spooled(writer, spool, count))
            writer.finish()
    finally:
        shutil.rmtree(spool, ignore_errors=True)
    return open_capture(folder)


class _Spooled(Receiver):
    """Keeps gradients in a file for each layer, until the last probe's is there."""

    def __init__(self, writer: CaptureWriter, spool: Path, count: int) -> None:
        self.writer, self.spool, self.count = writer, spool, count

    def on_layer(self, call: Call) -> None:
        """Check the folder at the first layer; stop where it holds the whole capture already."""
        self.writer.begin(layer_of(call))

    def on_output(self, run: ProbeRun) -> None:
        """Keep the numbers of the pass, and remove gradients of an interrupted capture."""
        self.run = run
        shutil.rmtree(self.spool, ignore_errors=True)
        self.spool.mkdir(parents=True)

    def on_gradient(self, call: Call, number: int, gradient: Tensor) -> None:
        """Append one gradient to its layer's file, and with the last one write the layer."""
        if not torch.isfinite(gradient).all():
            raise BadInput(
                f"The output's gradients at layer {call.layer} contain NaN or infinite numbers: "
                "the model's precision is too low for this text; load it in float32."
            )
        # The model's own precision: its outputs have it, and so have their gradients.
        kept = gradient.to(call.query.dtype)
        path = self.spool / str(call.layer)
        with path.open("ab") as file:
            file.writelines(rows_of(kept))
        if number + 1 < self.count:
            return
        place = Place(NAMES[kept.dtype], (self.count, *kept.shape), 0)
        gradients = OutputGradients(mapped(path, place), self.run.scale, self.run.limit)
        self.writer.add(call.layer, replace(layer_of(call), gradients=gradients))
        path.unlink()


def kept_probes(capture: Captured) -> Probes:
    """Return the probes whose gradients a capture keeps; refuse a capture without."""
    if capture.probes is None:
        raise BadInput(
            "The capture has no gradients of the model's output: capture again with --probes 4 "
            "(in Python capture_sensitivities), or plan with the model."
        )
    return capture.probes


def replay(capture: Captured, reduce: Reduce) -> ProbeRun:
    """Hand on layers' gradients from files, in the order of the passes."""
    numbers = []
    for group in groups_of(kept_probes(capture).count):
        for number in sorted(capture.layers, reverse=True):
            layer = capture.layers[number]
            assert layer.gradients is not None
            numbers.append((layer.gradients.scale, layer.gradients.limit))
            reduce(ProbedLayer(call_of(number, layer), layer.probe_gradients(group), group))
    if len(set(numbers)) > 1:
        raise BadInput("The layers of the capture are of different passes; capture it again.")
    return ProbeRun(*numbers[0], len(capture), torch.empty(0))


def output_weights(model: Any, text: Any, *, probes: int = 4, seed: int = 0) -> Array:
    """Nats that the next token loses for a squared error of one in each KV head's outputs.

    The mean over the text's queries, summed over the query heads that share keys: (layers, KV
    heads), of the layers whose cache can be cut. An error of unknown direction costs
    |g|^2 |e|^2 / (2 d), so heads compare by the mean square of g. Two texts give nearly the same:
    `al.models.Evict(0.25, sizes=al.models.output_weights(model, text))`.

    Parameters
    ----------
    model : LoadedModel or transformers model
        A causal one.
    text : str, token ids or ready inputs
    probes : int
        Backward passes.
    """
    network, _ = unwrap(model)
    target = choose_target(network, "kl")
    sums: dict[int, Tensor] = {}

    def reduce(layer: ProbedLayer) -> None:
        squares = layer.gradients.double().square().mean((2, 3)).sum(0)
        shared = squares.view(layer.call.key.shape[1], -1).sum(1)
        number = layer.call.layer
        sums[number] = sums.get(number, torch.zeros_like(shared)) + shared

    count = checks.count(probes, "probes")
    root = checks.count(seed, "seed", smallest=0)
    passed = probe(network, encode(model, text), target, count, root, reduce)
    stacked = torch.stack([sums[layer] for layer in evictable_layers(network)])
    return np.asarray(passed.scale / count * stacked.cpu().numpy())


@dataclass(frozen=True, eq=False)
class ErrorTerms:
    """Variance and mean of <g, error>, summed over queries, by layer, head and probe.

    Heads are query heads (H) or key-value heads, whichever the change acts on.
    """

    variance: Array  # (L, H, K)
    bias: Array  # (L, H, K)
    keys: Array  # (L, H) keys read by a query, or kept in the cache
    visible: float  # keys of dense attention, of the same kind
    rough: Array | None = None  # (L, H, K) variance of queries beyond first order and exact laws
    factor: float = 1.0  # of the error that higher orders leave
    bound: float = float("nan")  # least variance of independent sampling with as many keys
    doubt: str = ""  # why second order cannot hold, whatever the size
    parts: dict[str, Array] = field(default_factory=dict)  # of the variance, (L, H) each

    def by_query_head(self, heads: int) -> ErrorTerms:
        """Return the same terms with those of key-value heads spread over their query heads."""
        groups = heads // self.variance.shape[1]

        def spread(values: Array) -> Array:
            return np.repeat(values, groups, axis=1) / groups

        rough = None if self.rough is None else spread(self.rough)
        keys = np.repeat(self.keys, groups, axis=1)
        parts = {name: spread(part) for name, part in self.parts.items()}
        variance, bias = spread(self.variance), spread(self.bias)
        return replace(self, variance=variance, bias=bias, keys=keys, rough=rough, parts=parts)


class Accumulator(ABC):
    """Adds up the effect of a change, layer after layer and probe after probe."""

    @abstractmethod
    def add(self, layer: ProbedLayer) -> None:
        """Add one layer along a group of probes."""

    @abstractmethod
    def terms(self, index: int = 0) -> ErrorTerms:
        """Return the sums of one of the changes, when every layer was added."""


class Change(ABC):
    """A change of a model's attention whose effect on the output can be predicted and run."""

    prompt: int | None = None
    """Tokens read before the change, in a pass of their own; None if the text is read at once."""
    start: int | None = None
    """First position of the text whose queries are changed, where a change has one."""
    biased: bool = False
    """Whether errors have a mean that `expected_attention` gives."""
    draws: bool = True
    """Whether the change is random, so that runs differ."""
    check_runs: int = 1
    """Runs that a prediction is checked by before it is called trusted."""
    shares_passes: ClassVar[bool] = False
    """Whether the effects of several changes of the class are added up together."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Short description for tables."""

    @property
    def first(self) -> int:
        """First position of the text that is changed."""
        return self.prompt or self.start or 0

    @abstractmethod
    def bound_to(self, network: Any, tokens: int) -> Change:
        """Return the change for a model and a text's length; refuse what cannot be predicted."""

    @abstractmethod
    def accumulator(
        self, network: Any, tokens: int, probes: int, others: Sequence[Any] = ()
    ) -> Accumulator:
        """Return what adds up the effects of this change and `others` of its class."""

    @abstractmethod
    def active(self, model: Any, seed: int) -> AbstractContextManager[AttentionStats]:
        """Run the model with the change inside a `with` block."""

    def expected_attention(self, call: Call) -> Tensor | None:
        """Outputs of a layer with expected errors, if the change is biased; otherwise None."""
        return None
