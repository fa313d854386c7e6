"""Measured effect of a change on a model's output: run it beside the dense model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.intervals import skewness
from attnlimit.models.attention import attend_dense, attention_as, precise
from attnlimit.models.passes import Encoded, Outputs, encode, run, token_distances, unwrap
from attnlimit.models.sampled import AttentionStats
from attnlimit.planning.change import Change
from attnlimit.planning.changes import as_change, check_model
from attnlimit.planning.target import Target
from attnlimit.result import Result, format_pm


@dataclass(frozen=True)
class Evaluation(Result):
    """A changed model against the dense one on one text; means over repeats of the sampling.

    After a prompt that is read densely, numbers are of the tokens that follow it.
    """

    change: str
    repeats: int
    tokens: int  # of the text
    prompt: int  # tokens before the change, 0 if the text is read at once
    mean_keys: float  # read by a query of a head
    mean_visible: float  # that it sees
    mean_bytes: float  # of keys, values and proxies, read for a token by all layers
    dense_bytes: float  # that dense attention reads
    cache_bytes: float | None  # held by the cache after the prompt, if keys are dropped
    dense_cache_bytes: float | None
    hidden_error: float  # |h~ - h| / |h| of the last hidden states, root mean square
    embedding_cosine: float  # of the mean-pooled embeddings
    logit_error: float | None  # root mean square difference of centred logits, causal models
    kl: float | None  # mean KL(dense || changed) of the next token, in nats
    perplexity: float | None
    dense_perplexity: float | None
    top1: float | None  # share of positions whose most likely next token is the same
    skewness: float  # of the mean KL, or of the mean cosine
    stderr: dict[str, float]  # of each number, over the repeats; NaN from one repeat
    notes: tuple[str, ...] = ()

    @property
    def cosine_loss(self) -> float:
        """1 - cosine of the embeddings."""
        return 1 - self.embedding_cosine

    def distance(self, measure: str) -> tuple[float, float]:
        """Value and standard error of a target's measure, "kl" or "cosine_loss"."""
        if measure == "kl" and self.kl is not None:
            return self.kl, self.stderr["kl"]
        if measure == "cosine_loss":
            return self.cosine_loss, self.stderr["embedding_cosine"]
        raise BadInput(f"An evaluation of this model has no {measure}.")

    def to_frame(self) -> pd.DataFrame:
        """One row."""
        row = {key: value for key, value in self.__dict__.items() if key not in ("stderr", "notes")}
        row.update({f"{key}_stderr": value for key, value in self.stderr.items()})
        return pd.DataFrame([row])

    def __str__(self) -> str:
        moved, dense = self.mean_bytes / 1e6, self.dense_bytes / 1e6
        lines = [
            f"{self.change}: {self.mean_keys:.1f} of {self.mean_visible:.1f} keys read, "
            f"{moved:.3g} of {dense:.3g} MB a token"
        ]
        if self.cache_bytes is not None and self.dense_cache_bytes is not None:
            lines[0] += (
                f"; cache of {self.cache_bytes / 1e6:.2f} of "
                f"{self.dense_cache_bytes / 1e6:.2f} MB after {self.prompt} tokens"
            )
        if self.kl is None:
            loss = format_pm(self.cosine_loss, self.stderr["embedding_cosine"])
            lines.append(
                f"  1 - cosine of the embedding {loss}, hidden states off by "
                f"{self.hidden_error:.3g}"
            )
        else:
            lines.append(
                f"  KL {format_pm(self.kl, self.stderr['kl'])} nats, perplexity "
                f"{self.perplexity:.5g} (dense {self.dense_perplexity:.5g}), same top token at "
                f"{100 * (self.top1 or 0):.1f} %"
            )
        return "\n".join(lines + [f"  {note}" for note in self.notes])


def evaluate(
    model: Any,
    text: Any,
    change: Any,
    *,
    repeats: int = 3,
    seed: int = 0,
    prompt: int | None = None,
    truncate: bool = False,
) -> Evaluation:
    """Run a model with a change on a text, `repeats` times, and compare with the dense run.

    Parameters
    ----------
    model : LoadedModel or transformers model
    text : str, token ids, or a mapping of input tensors
    change : Sampler, mapping, plan, eviction rule, or Change
        One sampler for every head, samplers by (layer, head), a plan, or a rule such as `Evict`.
    repeats : int
        Draws; a change that draws nothing is run once.
    prompt : int, optional
        For eviction rules, tokens before the cache is cut; half of the text by default.
    """
    times = checks.count(repeats, "repeats")
    root = checks.count(seed, "seed", smallest=0)
    size = None if prompt is None else checks.count(prompt, "prompt", smallest=2)
    check_model(change, model)
    network, _ = unwrap(model)
    encoded = encode(model, text, truncate=truncate)
    tokens = len(encoded.positions)
    bound = as_change(change, size).bound_to(network, tokens)
    ids = encoded.inputs["input_ids"][0].cpu() if "input_ids" in encoded.inputs else None
    if ids is not None and encoded.keep is not None:
        ids = ids[encoded.keep.cpu()]
    before = bound.prompt or 0
    runs = changed_runs(model, encoded, bound, range(root, root + times))
    dense, _ = next(runs)
    rows = []
    for outputs, stats in runs:
        held = {"cache_bytes": stats.cache_bytes, "dense_cache_bytes": stats.dense_bytes}
        names = ("mean_keys", "mean_visible", "mean_bytes", "visible_bytes")
        read = {name: getattr(stats, name) for name in names}
        rows.append(read | held | _distances(dense, outputs, ids, before))
    frame = pd.DataFrame(rows)
    if not np.isfinite(frame["hidden_error"]).all():
        raise BadInput(
            "The changed model gave NaN, so its weights may be damaged; load it in float32."
        )
    means = {str(key): float(value) for key, value in frame.mean().items()}
    errors = frame.std(ddof=1) / len(frame) ** 0.5
    main = "kl" if "kl" in means else "embedding_cosine"
    cut = bool(means["dense_cache_bytes"])
    warning = getattr(change, "length_warning", lambda tokens: "")(tokens)
    return Evaluation(
        change=bound.name,
        repeats=len(frame),
        tokens=tokens,
        prompt=before,
        mean_keys=means["mean_keys"],
        mean_visible=means["mean_visible"],
        mean_bytes=means["mean_bytes"],
        dense_bytes=means["visible_bytes"],
        cache_bytes=means["cache_bytes"] if cut else None,
        dense_cache_bytes=means["dense_cache_bytes"] if cut else None,
        hidden_error=means["hidden_error"],
        embedding_cosine=means["embedding_cosine"],
        logit_error=means.get("logit_error"),
        kl=means.get("kl"),
        perplexity=means.get("perplexity"),
        dense_perplexity=means.get("dense_perplexity"),
        top1=means.get("top1"),
        skewness=float(skewness(frame[main].to_numpy()) / len(frame) ** 0.5),
        stderr={str(key): float(value) for key, value in errors.items()},
        notes=(warning,) if warning else (),
    )


@torch.no_grad()
def changed_runs(
    model: Any, encoded: Encoded, change: Change, seeds: Sequence[int], *, dense: bool = True
) -> Iterator[tuple[Outputs, AttentionStats]]:
    """Run the dense model, if wanted, then the changed one with each seed; one if nothing is drawn.

    With a prompt, outputs are of the tokens after it.
    """
    network, _ = unwrap(model)
    if dense:
        with attention_as(network, attend_dense):
            whole = run(network, encoded)
        first = change.prompt or 0
        logits = None if whole.logits is None else whole.logits[first:]
        yield Outputs(whole.hidden[first:], logits), AttentionStats()
    for seed in seeds if change.draws else seeds[:1]:
        with change.active(model, seed) as stats:
            if change.prompt is None:
                outputs = run(network, encoded)
            else:
                outputs = _read_on(network, encoded, change.prompt, stats)
        yield outputs, stats


def run_distance(
    model: Any,
    encoded: Encoded,
    change: Change,
    target: Target,
    seeds: Sequence[int],
    dense: Tensor | None = None,
) -> tuple[float, float]:
    """Mean distance of runs with a change from the dense run on one text, and its standard error.

    `dense` is what the target reads of the dense run, if it is known. One run of a change that
    draws has the error of its mean over positions, where there is one.
    """
    if change.prompt is not None:  # outputs of runs are those after it
        target = target.from_position(max(0, target.first - change.prompt))
    runs = changed_runs(model, encoded, change, seeds, dense=dense is None)
    if dense is None:
        dense = target.read(next(runs)[0])
    reads = [target.read(outputs) for outputs, _ in runs]
    values = np.array([target.between(dense, read) for read in reads])
    if len(values) > 1:
        return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
    error = target.position_error(dense, reads[0]) if change.draws else 0.0
    return float(values[0]), error


def _read_on(network: Any, encoded: Encoded, prompt: int, stats: AttentionStats) -> Outputs:
    """Read a prompt, then the rest of a text with the cache that it left."""
    if encoded.keep is not None:
        raise BadInput("A text with padding cannot be read in two parts; give it without padding.")
    ids = encoded.inputs["input_ids"]
    cache = network(ids[:, :prompt], use_cache=True, logits_to_keep=1).past_key_values
    held = stats.cache_bytes, stats.dense_bytes
    output = network(
        ids[:, prompt:], past_key_values=cache, use_cache=True, output_hidden_states=True
    )
    stats.cache_bytes, stats.dense_bytes = held  # right after the cut
    return Outputs(precise(output.hidden_states[-1][0]), precise(output.logits[0]))


def _distances(
    dense: Outputs, changed: Outputs, ids: Tensor | None, first: int
) -> dict[str, float]:
    gap = (changed.hidden - dense.hidden).square().sum(-1) / dense.hidden.square().sum(-1)
    cosine = torch.cosine_similarity(dense.embedding.double(), changed.embedding.double(), dim=0)
    numbers = {"hidden_error": float(gap.mean().sqrt()), "embedding_cosine": float(cosine)}
    if dense.logits is None or changed.logits is None or ids is None:
        return numbers
    centred = [logits - logits.mean(-1, keepdim=True) for logits in (dense.logits, changed.logits)]
    logs = [torch.log_softmax(logits, -1) for logits in (dense.logits, changed.logits)]
    numbers["logit_error"] = float((centred[0] - centred[1]).square().mean().sqrt())
    return numbers | token_distances(logs[0], logs[1], ids[first:])
