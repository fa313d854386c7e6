"""Effect of a change on a model's output: predicted from probes, and measured by runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.constants import MAX_ROUGH, MEASURED_DEVIATIONS, MEASURED_GAP
from attnlimit.errors import BadInput
from attnlimit.intervals import skewness
from attnlimit.models.attention import attend_dense, attention_as
from attnlimit.models.passes import Encoded, Outputs, encode, run, token_distances, unwrap
from attnlimit.models.sampled import AttentionStats
from attnlimit.picture import Panel, Series
from attnlimit.planning.changes import as_change, check_model, expected_pass
from attnlimit.planning.probes import (
    Accumulator,
    Change,
    ErrorTerms,
    ProbedLayer,
    ProbeRun,
    Prompt,
    probe,
    read_prompt,
)
from attnlimit.planning.target import Target, choose_target, third_order
from attnlimit.result import Pictured, Result, format_pm


@dataclass(frozen=True, eq=False)
class OutputError(Result, Pictured):
    """Predicted distance between the outputs of the dense and of the changed model.

    `contributions` adds up to `value`. The bias of all heads adds up before it is squared, so a
    head's share of it may be negative. Of samplers that draw nothing, or do not make up for keys
    left out, the bias is that of one pass with expected outputs.

    `trusted` says that second order holds and that a run of the change on the same text, whose
    distance is `measured`, agrees; `doubt` gives the reason if not.
    """

    change: str
    target: Target
    value: float
    stderr: float  # over the probes; NaN from one
    numerical_error: float  # that higher orders may leave
    variance: float  # part of the value
    bias: float  # part of the value
    bound: float  # least error of independent sampling of as many keys; NaN for other changes
    mean_keys: float  # read by a query of a head, or kept in the cache
    mean_visible: float  # of the dense model
    tokens: int  # of the text
    prompt: int  # tokens before the change, 0 if the text is read at once
    probes: int
    trusted: bool
    doubt: str
    measured: float | None  # by one run on the same text (the mean of a few for evictions)
    measured_stderr: float | None
    contributions: Array  # (layers, heads), or (layers, KV heads) for evictions
    keys: Array  # (layers, heads)
    parts: dict[str, Array] = field(default_factory=dict)  # of `contributions`, such as "values"

    @property
    def measure(self) -> str:
        """Name of the distance, such as "kl" or "cosine_loss"."""
        return self.target.measure

    @property
    def kl(self) -> float:
        """Mean KL divergence of the next token, in nats."""
        return self._named("kl")

    @property
    def cosine_loss(self) -> float:
        """1 - cosine of the embedding."""
        return self._named("cosine_loss")

    def _named(self, name: str) -> float:
        if name != self.measure:
            raise BadInput(
                f"This error is of the {self.target.label} (.{self.measure}), not .{name}; choose "
                "with output= when predicting."
            )
        return self.value

    def to_frame(self) -> pd.DataFrame:
        """One row for each head: its contribution to the error, and the keys it reads."""
        layers, heads = self.contributions.shape
        return pd.DataFrame(
            {
                "layer": np.repeat(np.arange(layers), heads),
                "head": np.tile(np.arange(heads), layers),
                "contribution": self.contributions.ravel(),
                "share": self.contributions.ravel() / (self.value or 1.0),
                "mean_keys": self.keys.ravel(),
            }
            | {f"contribution_{name}": part.ravel() for name, part in self.parts.items()}
        )

    def blame(self, most: int = 3) -> str:
        """Parts and layers that cause most of the error, in words."""
        whole = self.value or 1.0
        parts = [f"{100 * part.sum() / whole:.0f} % {name}" for name, part in self.parts.items()]
        by_layer = self.contributions.sum(axis=1) / whole
        worst = np.argsort(-by_layer)[:most]
        layers = ", ".join(f"{layer} ({100 * by_layer[layer]:.0f} %)" for layer in worst.tolist())
        return f"the loss comes from {', '.join(parts) or 'all heads'}; most from layers {layers}"

    def panel(self) -> Panel:
        """Share of the error by layer."""
        layers = np.arange(len(self.contributions))
        share = 100 * self.contributions.sum(axis=1) / (self.value or 1.0)
        series = [Series(layers, share, "line", self.change, self.change)]
        title = f"{self.target.label}, by layer"
        return Panel(title, "layer", "share of the error (%)", series, "linear", "linear")

    def __str__(self) -> str:
        unit = self.target.unit
        error = float(np.hypot(np.nan_to_num(self.stderr), self.numerical_error))
        keys = "reading" if not self.prompt else f"after a prompt of {self.prompt}, keeping"
        lines = [
            f"{self.change}: {self.target.label} {format_pm(self.value, error)}{unit} predicted, "
            f"{keys} {self.mean_keys:.1f} of {self.mean_visible:.1f} keys",
            f"  variance {self.variance:.3g}, bias {self.bias:.3g}; {self.probes} probes",
        ]
        if self.measured is not None:
            seen = format_pm(self.measured, self.measured_stderr)
            lines.append(f"  measured by one run on the same text: {seen}{unit}")
        if np.isfinite(self.bound):
            lines.append(
                f"  first-order bound for independent sampling of as many keys: {self.bound:.2g}"
            )
        return "\n".join(lines + ([f"  not trusted: {self.doubt}"] if self.doubt else []))


def output_error(
    model: Any,
    text: Any,
    change: Any,
    *,
    output: str | Target | None = None,
    probes: int = 8,
    seed: int = 0,
    prompt: int | None = None,
    truncate: bool = False,
    check: bool = True,
) -> OutputError:
    """Predict the effect of a change on a model's output from backward passes.

    Parameters
    ----------
    model : LoadedModel or transformers model
    text : str, token ids, or a mapping of input tensors
    change : Sampler, mapping, plan, eviction rule, Change, or a list of those
        One sampler for every head, samplers by (layer, head), a plan, a cache rule such as
        `Evict`, or several changes, whose errors add.
    output : "kl", "cosine" or Target, optional
        What counts: KL of the next token (the default for causal models), the angle of the
        mean-pooled embedding (the default for encoders), or a target of your own class.
    probes : int
        Backward passes; the standard error is over them.
    prompt : int, optional
        For eviction rules, tokens before the cache is cut; half of the text by default.
    check : bool
        Whether the change is run once on the text before a prediction is called trusted.
    """
    name = "change"
    errors = output_errors(
        model,
        text,
        {name: change},
        output=output,
        probes=probes,
        seed=seed,
        prompt=prompt,
        truncate=truncate,
        check=check,
    )
    return replace(errors[name], change=as_change(change, prompt).name)


def output_errors(
    model: Any,
    text: Any,
    changes: Mapping[str, Any],
    *,
    output: str | Target | None = None,
    probes: int = 8,
    seed: int = 0,
    prompt: int | None = None,
    truncate: bool = False,
    check: bool = True,
) -> dict[str, OutputError]:
    """Predict several changes, by name, from the same probes; see `output_error` for `check`.

    Either all of them act after a prompt, or none.
    """
    network, _ = unwrap(model)
    if not isinstance(changes, Mapping) or not changes:
        raise BadInput("Give changes by name, like {'few': al.Threshold(24)}; at least one.")
    target = choose_target(network, output)
    count = checks.count(probes, "probes")
    root = checks.count(seed, "seed", smallest=0)
    encoded, bound = _bound(model, text, changes, prompt, truncate)
    tokens = len(encoded.positions)
    prompts = {change.prompt for change in bound.values()}
    if len(prompts) > 1:
        raise BadInput(
            "Changes after a prompt and changes of a whole text need calls of their own."
        )
    after = prompts.pop()
    if after is not None:
        target = target.from_position(max(after, target.first))
    starts = {change.start for change in bound.values() if change.start is not None}
    if len(starts) > 1:
        raise BadInput("Plans for different numbers of decoded tokens need calls of their own.")
    target = target.from_position(max(target.first, *starts, 0))
    accumulators = _Accumulators(network, bound, tokens, count)
    passed = probe(network, encoded, target, count, root, accumulators.add)
    results = {}
    for name, change in bound.items():
        terms, exact_bias = accumulators.terms(name), None
        if change.biased:
            with torch.no_grad(), expected_pass(network, change):
                moved = target.read(run(network, encoded))
            exact_bias = target.between(passed.read, moved)
        results[name] = _result(name, target, terms, passed, exact_bias, tokens, after or 0)
        if check and results[name].trusted:
            times = max(change.check_runs, target.check_runs)
            seeds = range(root + 1, root + 1 + times)
            seen = run_distance(model, encoded, change, target, seeds, passed.read)
            results[name] = compare_with_run(results[name], *seen)
    return results


def _bound(
    model: Any, text: Any, changes: Mapping[str, Any], prompt: int | None, truncate: bool
) -> tuple[Encoded, dict[str, Change]]:
    """Text as the model takes it, and the changes for the model and the text's length."""
    network, _ = unwrap(model)
    size = None if prompt is None else checks.count(prompt, "prompt", smallest=2)
    for change in changes.values():
        check_model(change, model)
    encoded = encode(model, text, truncate=truncate)
    tokens = len(encoded.positions)
    bound = {
        name: as_change(change, size).bound_to(network, tokens) for name, change in changes.items()
    }
    return encoded, bound


class _Accumulators:
    """Accumulators of several changes; those of a class that allows it share their passes."""

    def __init__(
        self, network: Any, changes: Mapping[str, Change], tokens: int, probes: int
    ) -> None:
        kinds: dict[Any, list[str]] = {}
        for name, change in changes.items():
            kinds.setdefault(type(change) if change.shares_passes else name, []).append(name)
        self.places: dict[str, tuple[Accumulator, int]] = {}
        for names in kinds.values():
            first, *others = (changes[name] for name in names)
            own = first.accumulator(network, tokens, probes, others)
            self.places |= {name: (own, place) for place, name in enumerate(names)}
        self.every = list({id(own): own for own, _ in self.places.values()}.values())

    def add(self, layer: ProbedLayer) -> None:
        for accumulator in self.every:
            accumulator.add(layer)

    def terms(self, name: str) -> ErrorTerms:
        accumulator, place = self.places[name]
        return accumulator.terms(place)


def _result(
    name: str,
    target: Target,
    terms: ErrorTerms,
    passed: ProbeRun,
    exact_bias: float | None,
    tokens: int,
    prompt: int,
) -> OutputError:
    scale, probes = passed.scale, terms.variance.shape[-1]
    variance = scale * terms.variance
    whole = terms.bias.sum((0, 1))
    shared = scale * terms.bias * whole
    if exact_bias is not None:
        # The probes give the shares of the bias, the pass its size.
        probed = float((scale * whole**2).mean())
        shared = shared * (exact_bias / probed if probed > 0 else 0.0)
    by_probe = variance.sum((0, 1)) + (
        scale * whole**2 if exact_bias is None else np.full(probes, exact_bias)
    )
    value, noise = float(by_probe.mean()), float(variance.sum((0, 1)).mean())
    if not np.isfinite(value) or value < 0:
        raise BadInput("The prediction is not a finite number; load the model in float32.")
    rough = 0.0 if terms.rough is None else scale * float(terms.rough.sum((0, 1)).mean())
    doubt = terms.doubt
    if noise > passed.limit:
        doubt = (
            f"beyond {passed.limit:.3g} changed layers feed changed layers, and more is lost than "
            "second order predicts; measure it with evaluate"
        )
    elif rough > MAX_ROUGH * value > 0:
        doubt = (
            f"{100 * rough / value:.0f} % of it comes from queries whose sample is too small for "
            "first order; measure it with evaluate"
        )
    return OutputError(
        change=name,
        target=target,
        value=value,
        stderr=float(by_probe.std(ddof=1) / np.sqrt(probes)) if probes > 1 else float("nan"),
        numerical_error=terms.factor * third_order(noise, passed.limit),
        variance=noise,
        bias=value - noise,
        bound=scale * terms.bound,
        mean_keys=float(terms.keys.mean()),
        mean_visible=terms.visible,
        tokens=tokens,
        prompt=prompt,
        probes=probes,
        trusted=not doubt,
        doubt=doubt,
        measured=None,
        measured_stderr=None,
        contributions=(variance + shared).mean(-1),
        keys=terms.keys,
        parts={name: scale * part for name, part in terms.parts.items()},
    )


def compare_with_run(error: OutputError, measured: float, stderr: float) -> OutputError:
    """Return a prediction beside a run; trust is withdrawn where they differ too much."""
    reason = disagreement(error.value, error.stderr, measured, stderr)
    checked = replace(error, measured=measured, measured_stderr=stderr)
    return checked if not reason else replace(checked, trusted=False, doubt=reason)


def disagreement(value: float, stderr: float, measured: float, measured_stderr: float) -> str:
    """Reason why a prediction and a run on the same text disagree, or nothing."""
    gap = abs(measured - value)
    both = float(np.hypot(np.nan_to_num(stderr), measured_stderr))
    smaller = min(measured, value)
    if gap <= MEASURED_GAP * smaller or gap <= MEASURED_DEVIATIONS * both or gap < 1e-6:
        return ""
    ratio = measured / value if value > 0 else float("inf")
    return (
        f"a run on the same text measured {measured:.3g}, {ratio:.2g} times the prediction: the "
        "error is not small or not independent between queries here"
    )


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
    hidden_error: float  # |h~ - h| / |h| of the last hidden states, root mean square
    embedding_cosine: float  # of the mean-pooled embeddings
    skewness: float  # of the mean KL, or of the mean cosine
    stderr: dict[str, float]  # of each number, over the repeats; NaN from one repeat
    logit_error: float | None = None  # root mean square difference of centred logits
    kl: float | None = None  # mean KL(dense || changed) of the next token, in nats
    perplexity: float | None = None
    dense_perplexity: float | None = None
    top1: float | None = None  # share of positions whose most likely next token is the same
    cache_bytes: float | None = None  # held by the cache after the prompt, if keys are dropped
    dense_cache_bytes: float | None = None
    other: tuple[str, float] | None = None  # measure and distance of another target, if given
    notes: tuple[str, ...] = ()

    @property
    def cosine_loss(self) -> float:
        """1 - cosine of the embeddings."""
        return 1 - self.embedding_cosine

    def distance(self, measure: str) -> tuple[float, float]:
        """Value and standard error of a target's measure, such as "kl" or "cosine_loss"."""
        if self.other is not None and self.other[0] == measure:
            return self.other[1], self.stderr["other"]
        if measure == "kl" and self.kl is not None:
            return self.kl, self.stderr["kl"]
        if measure == "cosine_loss":
            return self.cosine_loss, self.stderr["embedding_cosine"]
        raise BadInput(f"An evaluation of this model has no {measure}.")

    def to_frame(self) -> pd.DataFrame:
        """One row."""
        left_out = ("stderr", "other", "notes")
        row = {key: value for key, value in self.__dict__.items() if key not in left_out}
        row.update({f"{key}_stderr": self.stderr[key] for key in self.stderr if key != "other"})
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
    target: Target | None = None,
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
    target : Target, optional
        Another distance to be measured, `.distance(target.measure)`; by default that of a plan.
    """
    times = checks.count(repeats, "repeats")
    root = checks.count(seed, "seed", smallest=0)
    encoded, changes = _bound(model, text, {"change": change}, prompt, truncate)
    tokens, bound = len(encoded.positions), changes["change"]
    ids = encoded.inputs["input_ids"][0].cpu() if "input_ids" in encoded.inputs else None
    if ids is not None and encoded.keep is not None:
        ids = ids[encoded.keep.cpu()]
    before = bound.first
    own = getattr(change, "target", None) if target is None else target
    if own is not None and own.measure in ("kl", "cosine_loss"):
        own = None  # measured anyway
    runs = changed_runs(model, encoded, bound, range(root, root + times))
    dense, _ = next(runs)
    rows = []
    for outputs, stats in runs:
        row = {name: getattr(stats, name) for name in ("mean_keys", "mean_visible", "mean_bytes")}
        row["dense_bytes"] = stats.visible_bytes
        if stats.dense_bytes:
            row |= {"cache_bytes": stats.cache_bytes, "dense_cache_bytes": stats.dense_bytes}
        if own is not None:
            row["other"] = own.between(own.read(dense), own.read(outputs))
        rows.append(row | _distances(dense, outputs, ids, before))
    frame = pd.DataFrame(rows)
    if not np.isfinite(frame["hidden_error"]).all():
        raise BadInput(
            "The changed model gave NaN, so its weights may be damaged; load it in float32."
        )
    means = {str(key): float(value) for key, value in frame.mean().items()}
    errors = frame.std(ddof=1) / len(frame) ** 0.5
    main = "kl" if "kl" in means else "embedding_cosine"
    warning = getattr(change, "length_warning", lambda tokens: "")(tokens)
    other = None if own is None else (own.measure, means.pop("other"))
    return Evaluation(
        change=bound.name,
        repeats=len(frame),
        tokens=tokens,
        prompt=before,
        skewness=float(skewness(frame[main].to_numpy()) / len(frame) ** 0.5),
        stderr={str(key): float(value) for key, value in errors.items()},
        other=other,
        notes=(warning,) if warning else (),
        **means,
    )


@torch.no_grad()
def changed_runs(
    model: Any,
    encoded: Encoded,
    change: Change,
    seeds: Sequence[int],
    *,
    dense: bool = True,
    prompt: Prompt | None = None,
) -> Iterator[tuple[Outputs, AttentionStats]]:
    """Run the dense model, if wanted, then the changed one with each seed; one if nothing is drawn.

    Outputs are of the tokens from the first changed one on. `prompt` are those before it, if they
    were read already.
    """
    network, _ = unwrap(model)
    if prompt is None and change.prompt is None and change.first:
        prompt = read_prompt(network, encoded, change.first)

    def read() -> Outputs:
        outputs = run(network, encoded, None if prompt is None else prompt.copied())
        skip = change.first - (0 if prompt is None else prompt.tokens)
        logits = None if outputs.logits is None else outputs.logits[skip:]
        return Outputs(outputs.hidden[skip:], logits)

    if dense:
        with attention_as(network, attend_dense):
            yield read(), AttentionStats()
    for seed in seeds if change.draws else seeds[:1]:
        with change.active(model, seed) as stats:
            if change.prompt is None:
                outputs = read()
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
    prompt: Prompt | None = None,
) -> tuple[float, float]:
    """Mean distance of runs with a change from the dense run on one text, and its standard error.

    `dense` is what the target reads of the dense run, if it is known. One run of a change that
    draws has the error of its mean over positions, where there is one.
    """
    if change.first:  # outputs of runs begin there
        target = target.from_position(max(0, target.first - change.first))
    runs = changed_runs(model, encoded, change, seeds, dense=dense is None, prompt=prompt)
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
    after_cut = stats.cache_bytes, stats.dense_bytes
    outputs = run(network, encoded, cache)
    stats.cache_bytes, stats.dense_bytes = after_cut
    return outputs


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
