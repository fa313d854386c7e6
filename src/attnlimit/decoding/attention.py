"""Fast decoding: a model generates while every decoded token reads few keys of the cache.

The prompt is read densely. A decoded token reads 4 bits of every key, or summaries of pages of keys
and 4 bits of a few pages, draws keys by them and reads those exactly. Kept keys are weighted by
their inclusion probabilities, as in `sampled_attention`.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask, sdpa_mask

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.decoding.cache import (
    LOG2E,
    DecodingLayer,
    attend_all,
    check_memory,
    left_padding,
    loss_of_cache,
    loss_of_reading,
    precisions_of,
    prepare_cache,
    stored_bits,
)
from attnlimit.decoding.control import Controller, divergence
from attnlimit.decoding.cost import cost_model
from attnlimit.decoding.dot import BLOCK
from attnlimit.decoding.index import (
    FLOOR,
    PAGE_FLOOR,
    SPARE_PAGES,
    levels_of,
    threshold_of,
)
from attnlimit.decoding.kernels import NEAR, NEVER, decode_by_keys, decode_by_pages
from attnlimit.decoding.rewind import DecodedBlock, rewound
from attnlimit.decoding.rows import OUTLIERS
from attnlimit.decoding.stats import DecodingStats
from attnlimit.errors import AttnlimitError, BadInput
from attnlimit.models.attention import HARMLESS_ARGUMENTS, Call, Mask
from attnlimit.models.eviction.cache import CacheEvictor, CutLayer
from attnlimit.models.eviction.rules import EvictionRule
from attnlimit.models.loading import predicts_tokens
from attnlimit.models.passes import unwrap
from attnlimit.models.sampled import SamplerPlan, Samplers, check_loss_limit, sampler_table
from attnlimit.planning.cost import Shape
from attnlimit.planning.precision import Quantize

NAME = "attnlimit_decoding"
ACCEPTED = {"softcap", "s_aux", "sliding_window", *HARMLESS_ARGUMENTS}
"""Arguments that models pass to their attention."""
_active: ContextVar[_Session | None] = ContextVar("attnlimit_decoding", default=None)


@contextmanager
def fast_decoding(
    model: Any,
    plan: Samplers,
    kl: float | None = None,
    *,
    seed: int = 0,
    limit: float | None = None,
    check_every: int | None = None,
    store: Quantize | None = None,
    evict: EvictionRule | None = None,
    levels: int | None = None,
    dense_below: int | None = None,
) -> Iterator[DecodingStats]:
    """Generate with kernels that read few keys of the cache for each decoded token.

    Works with forward passes of one token and a cache, and with `model.generate`: greedy or
    sampled, in batches with padding on the left. Passes of several tokens, such as the prompt,
    read all keys. What a sequence draws depends on the seed and its own tokens, not on threads or
    on other sequences of the batch.

    Parameters
    ----------
    model : LoadedModel or transformers model
        On the CPU, in float32 or bfloat16.
    plan : Plan or sampler
        A plan made with `decode=`, `al.Threshold(c)`, `al.TwoLevel(c)`, or such samplers by
        (layer, head). Heads without one read all keys.
    kl : float, optional
        Keep the mean KL divergence of decoded tokens from the dense model, in nats, at this
        target: blocks of decoded tokens are read again with all keys, and thresholds follow what
        they show. What a plan's bits and evictions lose cannot be seen from the cache; it counts
        as predicted.
    seed : int
    limit : float, optional
        Largest estimated loss of a token in nats, with a plan that was made for KL. A layer that
        would take a token past it reads all keys for that token.
    check_every : int, optional
        Read every so-many-th token densely as well and measure its loss, without a target; 1 for
        every token.
    store : Quantize, optional
        Precision of the cache: keys "row8" or "row4", values "block8" or "block4"; that of the plan
        by default, or the model's own numbers. The index is the upper half of the keys.
    evict : EvictionRule, optional
        Rule that cuts the cache once, after the prompt; that of the plan by default.
    levels : 1 or 2, optional
        Read 4 bits of every key, or of pages chosen by their summaries. By default what the plan
        is of, and for `al.Threshold(c)` the faster one on this machine at the text's length.
    dense_below : int, optional
        Tokens below which all keys are read; by default where that is faster on this machine.

    Yields
    ------
    DecodingStats
        Keys, bytes and time of decoded tokens, and their estimated or measured loss.
    """
    network, _ = unwrap(model)
    _check_network(network)
    stored = loss_of_cache(plan) if store is None and evict is None else 0.0
    target = None if kl is None else checks.positive(kl, "kl") - stored
    if target is not None and target <= 0:
        raise BadInput(
            f"The plan's bits and evictions lose {stored:.3g} nats, and the target is {kl:.3g}: "
            "give a larger kl, or a plan for this one."
        )
    every = None if check_every is None else checks.count(check_every, "check_every")
    control = Controller(target, every, loss_of_reading(plan))
    control.losses.stored = stored
    rule = getattr(plan, "evict", None) if evict is None else evict
    session = _Session(
        network, model, plan, control, precisions_of(network, plan, store), rule, seed, limit,
        levels, dense_below,
    )  # fmt: skip
    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, _mask)
    before = network.config._attn_implementation
    own, most = torch.get_num_threads(), vars(numba.config)["NUMBA_NUM_THREADS"]
    threads = numba.get_num_threads()  # the first call changes those of torch, too
    torch.set_num_threads(own)
    token = _active.set(session)
    hooks = []
    try:
        network.set_attn_implementation(NAME)
        numba.set_num_threads(min(own, most))
        base = network.get_decoder()
        hooks.append(base.register_forward_pre_hook(session.before_pass, with_kwargs=True))
        hooks.append(base.register_forward_hook(session.after_pass))
        if control.active:
            hooks.append(network.register_forward_pre_hook(session.check, with_kwargs=True))
            hooks.append(network.register_forward_hook(session.after_logits))
        yield session.stats
    finally:
        for hook in hooks:
            hook.remove()
        _active.reset(token)
        numba.set_num_threads(threads)
        network.set_attn_implementation(before)


def _check_network(network: Any) -> None:
    name = type(network).__name__
    if not predicts_tokens(network):
        raise BadInput(f"{name} does not generate, so it has no cache; use a causal model.")
    if network.device.type != "cpu":
        raise BadInput(
            f"Fast decoding runs on the CPU, and this model is on {network.device}; load it with "
            'device="cpu", or use sampled_attention.'
        )
    if network._is_stateful:
        raise BadInput(
            f"{name} keeps a state, not keys of all tokens, so there is nothing to read faster; "
            "generate without fast_decoding."
        )
    if getattr(network.config, "num_kv_shared_layers", 0):
        raise BadInput(
            f"Layers of {name} share their keys, which fast decoding cannot read; generate without "
            "it."
        )


class _Session:
    """State of a block of fast decoding."""

    def __init__(
        self,
        network: Any,
        model: Any,
        plan: Samplers,
        control: Controller,
        precisions: Sequence[Quantize | None] | None,
        evict: EvictionRule | None,
        seed: int,
        limit: float | None,
        levels: int | None,
        dense_below: int | None,
    ) -> None:
        config = network.config
        self.network = network
        self.seed = checks.count(seed, "seed", smallest=0)
        if isinstance(plan, SamplerPlan):
            plan.check_model(model)
        table = sampler_table(network, plan)
        self.c = np.array([[threshold_of(s) for s in row] for row in table], np.float32)
        given = {levels_of(s) for row in table for s in row if s is not None}
        chosen = given.pop() if len(given) == 1 else None
        if levels not in (None, 1, 2):
            raise BadInput(f"levels must be 1 or 2, got {levels!r}.")
        self.levels = chosen if levels is None else levels
        self.dense_below = (
            None if dense_below is None else checks.count(dense_below, "dense_below", smallest=0)
        )
        sensitivity = getattr(plan, "sensitivity", None)
        self.limit = check_loss_limit(limit, sensitivity)
        self.sensitivity = sensitivity
        heads = int(config.num_attention_heads)
        key_heads = int(getattr(config, "num_key_value_heads", None) or heads)
        width = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
        number = 2 if network.dtype == torch.bfloat16 else 4
        self.shape = Shape(heads, key_heads, width, width, number)
        self.control = control
        chosen_bits = precisions or [None] * int(config.num_hidden_layers)
        self.bits = [None if one is None else stored_bits(one) for one in chosen_bits]
        held = np.array([
            self.shape.row_bytes if one is None else one.token_bytes(width, width, number)
            for one in chosen_bits
        ])  # fmt: skip
        self.token_bytes = float(held.mean()) + self.shape.code_bytes
        self.evictor = None if evict is None else CacheEvictor(network, evict)
        self.length_warning = getattr(plan, "length_warning", lambda tokens: "")
        self.stats = DecodingStats(sensitivity, self.shape, control.losses, held)
        self.checking = False
        self.dense_logits: Tensor | None = None
        self.block: DecodedBlock | None = None
        self.needs_eager = bool(
            getattr(config, "attn_logit_softcapping", None)
            or any(hasattr(module, "sinks") for module in network.modules())
        )
        self.cache: Any = None
        self.called = False  # the attention, in this pass
        self.dense_seconds = 0.0  # of layers that read all keys
        self.padding: np.ndarray | None = None
        self.scratch: tuple[np.ndarray, ...] = ()
        self.no_sinks = np.full(heads, NEVER, np.float32)
        self.slots = 0
        self.step = False
        self.token_loss = np.zeros(0)

    # A pass of the model

    def before_pass(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Give the model a cache of fast decoding."""
        self.started, self.called = time.perf_counter(), False
        inputs = (kwargs.get("input_ids"), kwargs.get("inputs_embeds"), *args[:1])
        given = next((one for one in inputs if one is not None), None)
        self.step = False
        if given is None:
            return None
        if kwargs.get("use_cache") is False:
            raise BadInput("Fast decoding reads a cache of keys; leave out use_cache=False.")
        past = prepare_cache(kwargs.get("past_key_values"), self.network, self.bits)
        kwargs["past_key_values"] = self.cache = past
        seen = past.get_seq_length()
        most = getattr(self.network.config, "max_position_embeddings", None)
        if most is not None and seen + given.shape[1] > most:
            raise BadInput(
                f"The text has {seen + given.shape[1]} tokens and the model positions for {most}; "
                "use a shorter prompt or decode fewer tokens."
            )
        if not seen:
            layers = sum(isinstance(layer, DecodingLayer) for layer in past.layers)
            check_memory(layers * self.shape.key_heads * self.token_bytes, *given.shape[:2])
        if warning := self.length_warning(seen + given.shape[1]):
            warnings.warn(warning, stacklevel=2)
            self.length_warning = lambda tokens: ""
        self.step = given.shape[1] == 1 and seen > 0
        self.token_loss = np.zeros(len(given))
        if self.step and self.checking:
            self.rule = 0
        elif self.step:
            fast = [layer for layer in past.layers if isinstance(layer, DecodingLayer)]
            held = [float(layer.count.mean()) + 1 for layer in fast]
            self.rule = self.choose(int(max(held)), len(given))
            self.stats.begin_token(len(given), seen + 1, held, self.rule)
        return args, kwargs

    def after_pass(self, module: Any, args: Any, output: Any) -> None:
        """Cut the cache that a prompt left, or count the time of a decoded token."""
        if self.checking:
            return
        if not self.step and self.evictor is not None and self.cache is not None:
            self.evict(self.evictor)
        if not self.called:
            raise BadInput(
                f"{type(self.network).__name__} does not call transformers' attention interface, "
                "so fast decoding cannot read fewer keys for it; generate without it."
            )
        if self.step:
            self.stats.seconds_each.append(time.perf_counter() - self.started)
            self.stats.cache_bytes = sum(getattr(layer, "nbytes", 0) for layer in self.cache.layers)

    def evict(self, evictor: CacheEvictor) -> None:
        """Cut the layers that a prompt filled, as the rule says."""
        fast = {n: self.cache.layers[n] for n in evictor.cut_layers}
        if any(layer.dropped for layer in fast.values()):
            return
        layers: list[Any] = [DynamicLayer() for _ in self.cache.layers]
        for number, layer in fast.items():
            layers[number].keys, layers[number].values = layer.everything()
        whole = SimpleNamespace(layers=layers)
        evictor.after_pass(whole, (self.seed, 0))
        for number, layer in fast.items():
            if isinstance(cut := layers[number], CutLayer):
                layer.take(cut)

    def observe(
        self, number: int, query: Tensor, layer: DecodingLayer, scale: float, cap: Any
    ) -> None:
        """Record the queries of a prompt."""
        assert self.evictor is not None
        key, value = layer.everything()
        for row, skip in enumerate(layer.first[:: layer.groups].tolist()):
            one, size = slice(row, row + 1), key.shape[2]
            self.evictor.observe(
                Call(
                    number, query[one, :, skip:], key[one, :, skip:], value[one, :, skip:],
                    Mask(torch.arange(skip, size), True, None), scale, cap, None, row=row,
                )
            )  # fmt: skip

    # Tokens that are read both ways

    def check(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Before a token is decoded, run it densely or read the last ones again, if that is due."""
        if self.checking:
            return
        self.dense_logits = None
        past = kwargs.get("past_key_values")
        ids = kwargs.get("input_ids", args[0] if args else None)
        if ids is None or ids.shape[1] != 1 or past is None or not past.get_seq_length():
            self.block = None
            return
        past = kwargs["past_key_values"] = prepare_cache(past, self.network, self.bits)
        if self.block is not None and self.block.cache is not past:
            self.block = None
        if self.block is not None and self.block.full:
            self.read_again(module, self.block, kwargs)
            self.block = None
        if self.block is None and (size := self.control.next_block()):
            self.block = DecodedBlock(size, past)
        if self.block is not None:
            self.block.take(ids, kwargs)
        if self.control.due():
            with self.dense_run(), rewound(past):
                self.dense_logits = self.control.timed_check(
                    lambda: module(*args, **kwargs).logits[:, -1].detach()
                )

    @contextmanager
    def dense_run(self) -> Iterator[None]:
        """Read all keys inside a `with` block, and count nothing."""
        self.checking = True
        try:
            yield
        finally:
            self.checking = False

    @torch.no_grad()
    def read_again(self, module: Any, block: DecodedBlock, kwargs: dict[str, Any]) -> None:
        """Read the tokens of a block densely, all at once, and measure what each of them lost.

        The cache has their dense keys and values afterwards.
        """
        with self.dense_run(), self.control.timed_block():
            block.rewind()
            logits = module(**(kwargs | block.inputs(kwargs))).logits
            kl = [
                divergence(torch.log_softmax(logits[:, place].float(), -1), log)
                for place, log in enumerate(block.logs)
            ]
        self.control.add_block(torch.stack(kl))

    def after_logits(self, module: Any, args: Any, output: Any) -> None:
        """Measure the loss of a token that was run densely, and keep what a block needs."""
        if not self.step or self.checking:
            return
        log = torch.log_softmax(output.logits[:, -1].detach().float(), -1)
        self.control.add(self.dense_logits, log, time.perf_counter() - self.started)
        if self.block is not None:
            self.block.logs.append(log)

    def choose(self, tokens: int, batch: int) -> int:
        """Return how a token is read: 0 all keys, 1 or 2 levels."""
        floor = BLOCK * (NEAR + 2)
        if self.dense_below is None or self.levels is None:
            costs = cost_model().milliseconds(self.shape, tokens, self.mean_c(), batch)
        if tokens < (floor if self.dense_below is None else self.dense_below):
            return 0
        levels = self.levels
        if levels is None:
            levels = 1 if costs[1] <= costs[2] else 2
        if levels == 2 and tokens < floor:
            levels = 1
        whole = not any(self.bits)  # rounded keys are read fast by the kernels alone
        if self.dense_below is None and whole and costs[0] <= costs[levels]:
            return 0
        return levels

    def mean_c(self) -> float:
        """Mean threshold of the heads that have one."""
        finite = self.c[np.isfinite(self.c)]
        return self.control.factor * float(finite.mean()) if finite.size else 1e6

    # A layer of a pass

    def attend(
        self,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        scaling: float | None,
        kwargs: dict[str, Any],
    ) -> tuple[Tensor, Any]:
        """Outputs of one layer."""
        number = getattr(module, "layer_idx", None)
        self.called = True
        layer = None if self.cache is None or number is None else self.cache.layers[number]
        if number is None or not isinstance(layer, DecodingLayer):
            return self.dense(module, query, key, value, mask, scaling, kwargs)
        if (key.shape[1], value.shape[3]) != (layer.groups, layer.value_width):
            raise BadInput(
                f"The cache of {type(self.network).__name__} holds something else than its keys "
                "and values, which fast decoding cannot read; use sampled_attention."
            )
        given = query.shape[-1] ** -0.5 if scaling is None else scaling
        prompt = not self.step and not layer.dropped
        if prompt and self.padding is not None and not layer.first.any():
            layer.leave_out(self.padding)
        if prompt and self.evictor is not None and query.shape[2] == layer.length:
            self.observe(number, query, layer, given, kwargs.get("softcap"))
        if not self.step or self.rule == 0:
            if layer.dropped:
                own = kwargs.get("softcap"), kwargs.get("s_aux")
                return attend_all(layer, query, given, *own), None
            return self.dense(module, query, *layer.everything(), mask, scaling, kwargs)
        start = time.perf_counter()
        output = self.sampled(number, layer, query, given, kwargs)
        self.stats.attention_each[-1] += time.perf_counter() - start
        return output, None

    def dense(
        self, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
        scaling: float | None, kwargs: dict[str, Any],
    ) -> tuple[Tensor, Any]:  # fmt: skip
        """Outputs of a layer that reads all keys."""
        start, forward = time.perf_counter(), sdpa_attention_forward
        if self.needs_eager:
            forward = sys.modules[type(module).__module__].eager_attention_forward
            if mask is not None:
                mask = mask[..., : key.shape[2]]
        output = forward(module, query, key, value, mask, scaling=scaling, **kwargs)
        self.dense_seconds += time.perf_counter() - start
        return output

    def sampled(
        self,
        number: int,
        layer: DecodingLayer,
        query: Tensor,
        scaling: float,
        kwargs: dict[str, Any],
    ) -> Tensor:
        """Outputs (B, 1, H, d_v) of a decoded token by the kernels."""
        unknown = [k for k in kwargs if k not in ACCEPTED and kwargs[k] is not None]
        if unknown:
            raise BadInput(
                f"The model passes {', '.join(sorted(unknown))} to its attention, which fast "
                "decoding does not know; use sampled_attention."
            )
        batch, heads, _, width = query.shape
        pages = layer.pages() if self.rule == 2 else None
        index = layer.indexed()
        queries = query.reshape(batch * heads, width).float().numpy()
        out = np.empty((batch * heads, layer.value_width), np.float32)
        softcap, sinks = kwargs.get("softcap"), kwargs.get("s_aux")
        masses, scratch, chosen = self.room(batch * heads, layer.slots)
        totals = self.stats.totals_of(number, batch * heads)
        common = (
            queries, np.float32(scaling * LOG2E), *layer.stored(), layer.first, layer.count,
            layer.added(), np.float32(0 if softcap is None else softcap * LOG2E),
            self.no_sinks if sinks is None else sinks.float().numpy() * np.float32(LOG2E),
            index.codes, index.scales, index.mean,
        )  # fmt: skip
        length = layer.count[:: layer.groups].copy()  # contiguous, as that of one sequence is
        c = self.c[number] * np.float32(self.control.factor)
        if pages is None:
            decode_by_keys(
                *common, c, FLOOR, self.seed, number, length, scratch, chosen, out, totals
            )
        else:
            decode_by_pages(
                *common, *pages.arrays(), c, FLOOR, PAGE_FLOOR, SPARE_PAGES, self.seed,
                number, length, masses, scratch, chosen, out, totals,
            )  # fmt: skip
        output = torch.from_numpy(out).view(batch, 1, heads, -1).to(query.dtype)
        if self.limit is not None:
            self.hold(number, layer, query, scaling, output, totals, softcap, sinks)
        return output

    def hold(
        self, number: int, layer: DecodingLayer, query: Tensor, scaling: float, output: Tensor,
        totals: Array, softcap: float | None, sinks: Tensor | None,
    ) -> None:  # fmt: skip
        """Read all keys for sequences that would lose more than the limit."""
        batch, heads = query.shape[:2]
        assert self.sensitivity is not None
        assert self.limit is not None
        nats = (totals[:, 3].reshape(batch, heads) * self.sensitivity[number]).sum(1)
        over = self.token_loss + nats > self.limit
        self.token_loss += np.where(over, 0.0, nats)
        if over.any():
            rows = torch.from_numpy(np.flatnonzero(over))
            output[rows] = attend_all(layer, query, scaling, softcap, sinks, rows)
            self.stats.dense_layers += int(over.sum())
            squares = totals.reshape(batch, heads, -1)
            squares[over, :, 2] -= squares[over, :, 3]

    def room(self, tasks: int, slots: int) -> tuple[np.ndarray, ...]:
        """Working memory, shared by all layers."""
        if not self.scratch or self.scratch[0].shape[0] < tasks or self.slots < slots:
            far = -(-slots * OUTLIERS // BLOCK // BLOCK) * BLOCK
            pages = -(-slots // BLOCK // BLOCK) * BLOCK
            self.scratch = (
                np.zeros((tasks, pages), np.float32),
                np.zeros((tasks, slots + far), np.float32),
                np.zeros((tasks, 3, slots), np.float32),
            )
            self.slots = slots
        return self.scratch


def current_session() -> _Session:
    """Return the state of the block of fast decoding that is active."""
    session = _active.get()
    if session is None:
        raise AttnlimitError(
            "This attention works inside fast_decoding alone; use `with fast_decoding(model, "
            "plan):`."
        )
    return session


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Any]:
    return current_session().attend(module, query, key, value, attention_mask, scaling, kwargs)


def _mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    attention_mask: Tensor | None = None,
    **kwargs: Any,
) -> Tensor | None:
    """Mask of a dense pass; a decoded token of unpadded sequences needs none."""
    session = current_session()
    padded = attention_mask is not None and not bool(attention_mask.all())
    if q_length > 1 or not session.step:
        session.padding = None
        if padded and attention_mask is not None:
            session.padding = left_padding(attention_mask)
    if q_length == 1 and session.step and not padded and not session.needs_eager:
        return None
    make = eager_mask if session.needs_eager else sdpa_mask
    return make(batch_size, q_length, kv_length, attention_mask=attention_mask, **kwargs)
