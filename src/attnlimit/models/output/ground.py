"""What is a plan for the output made on? A model and texts, or captures that keep its gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.capture.captured import Captured
from attnlimit.models.capture.dense import attend_dense
from attnlimit.models.capture.encode import encode, unwrap
from attnlimit.models.capture.interface import Call, attention_as
from attnlimit.models.capture.run import call_of
from attnlimit.models.output.bias import bias_distance
from attnlimit.models.output.heads import HeadErrors, head_errors, summed_errors
from attnlimit.models.output.stored import kept_probes, replay
from attnlimit.models.output.target import choose_target
from attnlimit.models.spend.assign import Table, shape_of
from attnlimit.models.spend.outputs import predicts_tokens, run
from attnlimit.models.spend.spend import attend_sampled
from attnlimit.models.spend.spent import Spent
from attnlimit.montecarlo.sampled import generator_of
from attnlimit.samplers import Sampler

PROBES = 4
MUST_RUN = (
    "A family that leaves keys out and does not make up for them takes a run of the model to "
    "predict, and a capture has none: plan it with --model and --text, or from the capture by a "
    "family that does, such as threshold."
)


class Ground(ABC):
    """Texts on which every head's effect on the output can be known."""

    name: str  # of the model
    weights: str  # SHA-256 of its weights, empty if not known
    predicts: bool  # whether it predicts the next token
    shape: tuple[int, int]  # layers and heads
    groups: int  # key-value heads of a layer
    tokens: tuple[int, ...]  # of each text
    probes: int
    seed: int

    @abstractmethod
    def errors(self, text: int, tables: Sequence[Table], *, bytes_too: bool) -> HeadErrors:
        """Variance and bias of every head along the probes of one text."""

    @abstractmethod
    def check_biased(self, family: Sampler) -> None:
        """Raise unless `bias` can be asked about a family that leaves keys out for good."""

    @abstractmethod
    def bias(self, text: int, errors: HeadErrors, table: Table) -> float:
        """Distance of the output when heads err by their mean error."""

    @abstractmethod
    def each_layer(self, text: int, look: Callable[[Call], None]) -> None:
        """Show every layer of one text, as the dense model has it."""

    def seen(self, table: Table) -> tuple[Array, Array]:
        """What one draw shows, mean over the texts; queries and keys are the dense model's.

        Squared errors (layers, heads) as they are seen from drawn keys, and the keys that the heads
        of a group read together (layers, KV heads).
        """

        def look(call: Call, spent: Spent) -> None:
            chance = np.random.SeedSequence([self.seed, 0, call.layer])
            attend_sampled(call, table[call.layer], generator_of(chance), spent)

        squares, shared = np.zeros(self.shape), np.zeros((self.shape[0], self.groups))
        for text in range(len(self.tokens)):
            spent = Spent()
            self.each_layer(text, partial(look, spent=spent))
            squares += spent.mean_squares() / len(self.tokens)
            shared += spent.mean_shared() / len(self.tokens)
        return squares, shared


class ModelOnTexts(Ground):
    """A model that is here, and runs."""

    def __init__(
        self, model: Any, texts: Any, output: str, probes: int, seed: int, truncate: bool
    ) -> None:
        self.network, _ = unwrap(model)
        self.target = choose_target(self.network, output)
        self.encoded = [encode(model, text, truncate=truncate) for text in _listed(texts)]
        source = self.encoded[0].source
        self.name = str(source.get("model", type(model).__name__))
        self.weights = str(source.get("weights", ""))
        self.predicts = predicts_tokens(self.network)
        self.shape = shape_of(self.network)
        self.groups = int(
            getattr(self.network.config, "num_key_value_heads", None) or self.shape[1]
        )
        self.tokens = tuple(len(one.positions) for one in self.encoded)
        self.probes, self.seed = probes, seed

    def errors(self, text: int, tables: Sequence[Table], *, bytes_too: bool) -> HeadErrors:
        """Run probes; every text has its own seed."""
        how = self.target, self.probes, self.seed + text
        return head_errors(self.network, self.encoded[text], tables, *how, bytes_too=bytes_too)

    def check_biased(self, family: Sampler) -> None:
        """Every family can be run."""

    def bias(self, text: int, errors: HeadErrors, table: Table) -> float:
        """Run the model once, with expected outputs."""
        read = errors.probed.read
        return bias_distance(self.network, self.encoded[text], self.target, read, table)

    def each_layer(self, text: int, look: Callable[[Call], None]) -> None:
        """Run the model once."""

        def attention(call: Call) -> Tensor:
            look(call.settled())
            return attend_dense(call)

        with torch.no_grad(), attention_as(self.network, attention):
            run(self.network, self.encoded[text])


class CapturesAlone(Ground):
    """Captures that keep the output's gradients; the model may be anywhere."""

    def __init__(self, captures: Sequence[Captured], output: str) -> None:
        self.captures = captures
        kept = [kept_probes(one) for one in captures]
        first = captures[0]
        if any((one.output, one.count) != (kept[0].output, kept[0].count) for one in kept):
            raise BadInput("The captures keep probes of different kinds or numbers; capture again.")
        if kept[0].output != output:
            raise BadInput(
                f"The capture keeps what moves the output by {kept[0].output}, and the target is "
                f"one of {output}: capture again with --output {output}, or plan with the model."
            )
        if any((one.depth, one.heads) != (first.depth, first.heads) for one in captures):
            raise BadInput("The captures are of models of different shapes; give those of one.")
        self.name = str(first.source.get("model", "own tensors"))
        self.weights = str(first.source.get("weights", ""))
        self.predicts = output == "kl"
        self.shape = first.depth, first.heads
        self.groups = len(next(iter(first.layers.values())).k)
        self.tokens = tuple(len(one) for one in captures)
        self.probes, self.seed = kept[0].count, kept[0].seed

    def errors(self, text: int, tables: Sequence[Table], *, bytes_too: bool) -> HeadErrors:
        """Read the probes that were run when the capture was made."""
        return self.layer_errors(text, None, tables, bytes_too=bytes_too)

    def layer_errors(
        self, text: int, layers: Sequence[int] | None, tables: Sequence[Table], *, bytes_too: bool
    ) -> HeadErrors:
        """Read some layers alone; the others' errors are zero."""
        passes = partial(replay, self.captures[text], layers=layers)
        return summed_errors(passes, tables, self.probes, bytes_too=bytes_too)

    def check_biased(self, family: Sampler) -> None:
        """Refuse: the bias is known from a run."""
        raise BadInput(MUST_RUN)

    def bias(self, text: int, errors: HeadErrors, table: Table) -> float:
        """Refuse: there is no model to run."""
        raise BadInput(MUST_RUN)

    def each_layer(self, text: int, look: Callable[[Call], None]) -> None:
        """Read the layers one after another."""
        for number, layer in sorted(self.captures[text].layers.items()):
            look(call_of(number, layer))


def ground_of(
    model: Any,
    texts: Any,
    output: str,
    *,
    probes: int | None = None,
    seed: int | None = None,
    truncate: bool = False,
) -> Ground:
    """Return what a plan is made on, from what its maker was given."""
    count = None if probes is None else checks.count(probes, "probes", smallest=2)
    root = None if seed is None else checks.count(seed, "seed", smallest=0)
    several = isinstance(model, (list, tuple)) and len(model) > 0
    if not all(isinstance(one, Captured) for one in (model if several else [model])):
        if texts is None:
            raise BadInput("There are no texts to plan on; give at least one, after the model.")
        return ModelOnTexts(model, texts, output, count or PROBES, root or 0, truncate)
    if texts is not None:
        raise BadInput("A capture is of its own text; give no other, or a model to read it.")
    ground = CapturesAlone(list(model) if several else [model], output)
    if count not in (None, ground.probes) or root not in (None, ground.seed):
        raise BadInput(
            f"The capture keeps {ground.probes} probes of seed {ground.seed}: say nothing of them, "
            "or capture again with others."
        )
    return ground


def _listed(texts: Any) -> list[Any]:
    """Several texts, or one."""
    one = isinstance(texts, (str, Mapping, torch.Tensor)) or (
        isinstance(texts, Sequence) and len(texts) > 0 and isinstance(texts[0], (int, np.integer))
    )
    listed = [texts] if one else list(texts)
    if not listed:
        raise BadInput("There are no texts to plan on; give at least one.")
    return listed
