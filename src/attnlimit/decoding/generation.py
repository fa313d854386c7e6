"""Text that a model writes with fast decoding, beside what it writes with all keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.decoding.attention import current_session, fast_decoding
from attnlimit.decoding.rewind import rewound
from attnlimit.decoding.stats import DecodingStats
from attnlimit.errors import BadInput
from attnlimit.models.passes import unwrap
from attnlimit.models.sampled import Samplers
from attnlimit.picture import FigureSpec, Panel, Series
from attnlimit.planning.plan import Plan
from attnlimit.result import Result, format_pm

CHECKS = 8
"""Tokens that are read both ways where nothing is compared, for times and loss."""
STEPS = 7
"""Tokens that are decoded at each length of a context, of which the median is taken."""


@dataclass(frozen=True, eq=False)
class Generation(Result):
    """Texts written after prompts, with the cost and the loss of their tokens."""

    texts: tuple[str, ...]
    dense_texts: tuple[str, ...] | None  # with all keys, where compared
    prompt_tokens: tuple[int, ...]
    stats: DecodingStats
    dense_ms: float  # a step of the whole batch with all keys, median
    kl: float  # measured, of the tokens that were read both ways
    kl_stderr: float

    @property
    def ms(self) -> float:
        """Milliseconds of a step of the whole batch, median."""
        return 1e3 * float(np.median(self.stats.seconds_each))

    @property
    def tokens(self) -> int:
        """Tokens written after each prompt, the first of which comes from the prompt's pass."""
        return len(self.stats.seconds_each) + 1

    def to_frame(self) -> pd.DataFrame:
        """One row for each prompt."""
        frame = pd.DataFrame({"prompt_tokens": self.prompt_tokens, "text": self.texts})
        if self.dense_texts is not None:
            frame["dense_text"] = self.dense_texts
        return frame

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers and texts, as JSON holds them."""
        stats = self.stats
        return {
            "texts": list(self.texts),
            "dense_texts": None if self.dense_texts is None else list(self.dense_texts),
            "prompt_tokens": list(self.prompt_tokens),
            "tokens": self.tokens,
            "dense_tokens": stats.dense_tokens,
            "keys": stats.keys,
            "scored": stats.scored,
            "visible": stats.mean_visible,
            "bytes": stats.bytes,
            "dense_bytes": stats.dense_bytes,
            "cache_bytes": stats.cache_bytes,
            "ms": self.ms,
            "dense_ms": self.dense_ms,
            "attention_ms": 1e3 * stats.attention_seconds / max(1, len(stats.seconds_each)),
            "kl": self.kl,
            "kl_stderr": self.kl_stderr,
        }

    def __str__(self) -> str:
        stats = self.stats
        lines = [
            f"{self.tokens} tokens after {' and '.join(map(str, self.prompt_tokens))}: "
            f"{self.ms:.3g} ms a step, {self.dense_ms:.3g} with all keys"
        ]
        if stats.sampled_tokens:
            lines.append(
                f"  a query keeps {stats.keys:.1f} of {stats.mean_visible:.0f} keys; "
                f"{stats.bytes / 1e6:.3g} of {stats.dense_bytes / 1e6:.3g} MB read for a token"
            )
        if stats.dense_tokens:
            lines.append(f"  {stats.dense_tokens} tokens read all keys, where that is faster")
        lines.append(f"  cache and index {stats.cache_bytes / 1e6:.3g} MB")
        if np.isfinite(self.kl):
            lines.append(
                f"  loss {format_pm(self.kl, self.kl_stderr)} nats a token, measured on "
                f"{len(stats.losses.kl)} tokens read both ways"
            )
        return "\n".join(lines)


@torch.no_grad()
def generate(
    model: Any,
    prompts: str | Sequence[int] | Sequence[str | Sequence[int]],
    plan: Samplers,
    *,
    tokens: int = 100,
    kl: float | None = None,
    compare: bool = False,
    temperature: float = 0.0,
    seed: int = 0,
    on_text: Callable[[str], None] | None = None,
    **options: Any,
) -> Generation:
    """Continue one prompt or several with fast decoding.

    Parameters
    ----------
    model : LoadedModel
        A causal one, with its tokenizer.
    prompts : str, token ids, or a list of those
        Several prompts are one batch.
    plan, kl, seed
        As for `fast_decoding`, which takes further `options`.
    tokens : int
        Tokens to write after each prompt; fewer if all end before.
    compare : bool
        Write the text with all keys too, and measure the loss of every token.
    temperature : float
        0 for the most likely token, or that of sampling.
    on_text : callable, optional
        Called with pieces of the text as it is written, for one prompt.
    """
    network, tokenizer = unwrap(model)
    if tokenizer is None:
        raise BadInput("The model has no tokenizer; load it by its name or folder.")
    count = checks.count(tokens, "tokens", smallest=2)
    if temperature < 0:
        raise BadInput(f"temperature must be 0 or more, got {temperature:g}.")
    ids = [_ids(tokenizer, prompt) for prompt in _listed(prompts)]
    padded, mask = _batch(ids, tokenizer)
    every = 1 if compare else max(1, count // CHECKS)
    generator = torch.Generator().manual_seed(seed)
    choose = _Choice(temperature, generator)
    dense_texts = None
    with fast_decoding(model, plan, kl, seed=seed, check_every=every, **options) as stats:
        session = current_session()
        places = (mask.cumsum(1) - 1).clamp_min(0)
        out = network(
            padded, attention_mask=mask, position_ids=places, use_cache=True, logits_to_keep=1
        )
        cache, first = out.past_key_values, out.logits[:, -1]
        writer = _Writer(network, tokenizer, mask, cache, count)
        if compare:
            with session.dense_run(), rewound(cache):
                written = writer.write(first, _Choice(temperature, generator.clone_state()), None)
            dense_texts = _texts(tokenizer, written)
        show = on_text if len(ids) == 1 else None
        written = writer.write(first, choose, show)
    each = session.control.seconds_each
    return Generation(
        texts=_texts(tokenizer, written),
        dense_texts=dense_texts,
        prompt_tokens=tuple(map(len, ids)),
        stats=stats,
        dense_ms=1e3 * float(np.median(each)) if each else float("nan"),
        kl=stats.kl if stats.losses.kl else float("nan"),
        kl_stderr=stats.losses.stderr(),
    )


@dataclass(frozen=True, eq=False)
class ContextTimes(Result):
    """Time and bytes of attention of a decoded token by length of the context."""

    frame: pd.DataFrame

    def to_frame(self) -> pd.DataFrame:
        """One row for each length: all layers together, measured and predicted."""
        return self.frame

    def figure(self) -> FigureSpec:
        """Milliseconds and bytes against context, with all keys and with the plan."""
        tokens = self.frame["tokens"].to_numpy()

        def series(column: str, style: str, label: str | None, group: str) -> Series:
            return Series(tokens, self.frame[column].to_numpy(), style, label, group)

        dense, fast = "all keys", "the plan's keys"
        times = [
            series("predicted dense, ms", "line", f"{dense}, predicted", dense),
            series("dense, ms", "points", f"{dense}, measured", dense),
            series("predicted, ms", "line", f"{fast}, predicted", fast),
            series("ms", "points", f"{fast}, measured", fast),
        ]
        sizes = [
            series("dense, MB", "line", dense, dense),
            series("predicted, MB", "line", f"{fast}, predicted", fast),
            series("MB", "points", f"{fast}, measured", fast),
        ]
        axis = "tokens of context"
        panels = [
            Panel("Attention of a decoded token", axis, "milliseconds", times),
            Panel("Read of the cache for a token", axis, "megabytes", sizes),
        ]
        return FigureSpec("A decoded token against the length of its context", panels)

    def __str__(self) -> str:
        return self.frame.to_string(index=False, float_format="%.3g")


@torch.no_grad()
def time_by_context(
    model: Any, ids: Sequence[int], plan: Plan, lengths: Sequence[int], *, seed: int = 0
) -> ContextTimes:
    """Measure decoded tokens of one text after each of `lengths` tokens, beside their prediction.

    The text, of which `STEPS` tokens follow the longest length, is read once.
    """
    network, _ = unwrap(model)
    text, most = torch.tensor([list(ids)]), max(lengths)
    if text.shape[1] < most + STEPS:
        raise BadInput(
            f"The text has {text.shape[1]} tokens, and {most + STEPS} are needed; give more text."
        )
    rows = []
    samplers = plan.samplers()
    with fast_decoding(network, samplers, seed=seed):
        read = network(text[:, :most], use_cache=True, logits_to_keep=1)
    cache = read.past_key_values
    for length in sorted(lengths, reverse=True):
        for layer in cache.layers:
            layer.rewind(length)
            layer.index = None
        following = text[0, length : length + STEPS]
        with fast_decoding(network, samplers, seed=seed, levels=plan.levels()) as stats:
            with current_session().dense_run(), rewound(cache):
                all_keys = _attention_ms(network, following, cache, stats)
            measured = _attention_ms(network, following, cache, stats)
        dense, fast = plan.milliseconds(length)
        some, every = (each / 1e6 for each in plan.costs(length)["bytes_read"])
        rows.append({
            "tokens": length,
            "ms": measured,
            "dense, ms": all_keys,
            "predicted, ms": min(fast, dense),
            "predicted dense, ms": dense,
            "MB": stats.bytes / 1e6 if stats.sampled_tokens else every,
            "dense, MB": every,
            "predicted, MB": some if fast < dense else every,
        })  # fmt: skip
    return ContextTimes(pd.DataFrame(rows[::-1]))


def _attention_ms(network: Any, ids: Tensor, cache: Any, stats: DecodingStats) -> float:
    """Median milliseconds of attention of tokens that are decoded one by one."""
    session, seconds = current_session(), [0.0]
    for token in ids:
        network(token[None, None], past_key_values=cache, use_cache=True)
        seconds.append(session.dense_seconds + stats.attention_seconds)
    return 1e3 * float(np.median(np.diff(seconds)[1:]))


class _Choice:
    """Chooses next tokens from logits."""

    def __init__(self, temperature: float, generator: torch.Generator) -> None:
        self.temperature, self.generator = temperature, generator

    def __call__(self, logits: Tensor) -> Tensor:
        if self.temperature == 0:
            return logits.argmax(-1, keepdim=True)
        probabilities = torch.softmax(logits.float() / self.temperature, -1)
        return torch.multinomial(probabilities, 1, generator=self.generator)


class _Writer:
    """Decodes token by token after a prompt."""

    def __init__(self, network: Any, tokenizer: Any, mask: Tensor, cache: Any, count: int) -> None:
        self.network, self.tokenizer, self.cache, self.count = network, tokenizer, cache, count
        self.mask = mask
        end = getattr(network.generation_config, "eos_token_id", None)
        self.ends = torch.tensor([end] if isinstance(end, int) else list(end or []))

    def write(self, logits: Tensor, choose: _Choice, show: Callable[[str], None] | None) -> Tensor:
        """Token ids (B, n) of the texts."""
        chosen = [choose(logits)]
        ended = torch.isin(chosen[0], self.ends)
        mask, shown = self.mask, ""
        while len(chosen) < self.count and not bool(ended.all()):
            if show is not None:
                text = self.tokenizer.decode(torch.cat(chosen, 1)[0])
                if not text.endswith("\ufffd"):  # a letter of several tokens
                    show(text[len(shown) :])
                    shown = text
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
            out = self.network(
                chosen[-1],
                attention_mask=mask,
                position_ids=mask.sum(1, keepdim=True) - 1,
                past_key_values=self.cache,
                use_cache=True,
            )
            chosen.append(choose(out.logits[:, -1]))
            ended = ended | torch.isin(chosen[-1], self.ends)
        ids = torch.cat(chosen, 1)
        if show is not None:
            show(self.tokenizer.decode(ids[0])[len(shown) :])
        return ids


def _texts(tokenizer: Any, ids: Tensor) -> tuple[str, ...]:
    return tuple(tokenizer.decode(row, skip_special_tokens=True) for row in ids)


def _listed(prompts: Any) -> list[Any]:
    if isinstance(prompts, str) or (len(prompts) and isinstance(prompts[0], (int, np.integer))):
        return [prompts]
    if not len(prompts):
        raise BadInput("There is no prompt; give at least one.")
    return list(prompts)


def _ids(tokenizer: Any, prompt: str | Sequence[int]) -> list[int]:
    ids = tokenizer(prompt).input_ids if isinstance(prompt, str) else [int(one) for one in prompt]
    if len(ids) < 2:
        raise BadInput("A prompt must have two tokens at least; give more text.")
    return list(ids)


def _batch(ids: Sequence[Sequence[int]], tokenizer: Any) -> tuple[Tensor, Tensor]:
    """Token ids and mask, with padding on the left."""
    longest = max(map(len, ids))
    fill = tokenizer.pad_token_id or 0
    padded = torch.tensor([[fill] * (longest - len(row)) + list(row) for row in ids])
    kept = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in ids])
    return padded, kept
