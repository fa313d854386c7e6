"""Predicted effect of a change on a model's output, checked by a run before it is trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.constants import MAX_ROUGH, MEASURED_DEVIATIONS, MEASURED_GAP
from attnlimit.errors import BadInput
from attnlimit.models.passes import encode, run, unwrap
from attnlimit.picture import Panel, Series
from attnlimit.planning.change import Accumulator, Change, ErrorTerms
from attnlimit.planning.changes import (
    SampledKeys,
    as_change,
    check_model,
    expected_pass,
)
from attnlimit.planning.evaluation import run_distance
from attnlimit.planning.probes import ProbedLayer, ProbeRun, probe
from attnlimit.planning.target import Output, Target, choose_target, third_order
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
        """Name of the distance: "kl", "cosine_loss" or "squared_error"."""
        return self.target.measure

    @property
    def kl(self) -> float:
        """Mean KL divergence of the next token, in nats."""
        return self._named("kl")

    @property
    def cosine_loss(self) -> float:
        """1 - cosine of the embedding."""
        return self._named("cosine_loss")

    @property
    def squared_error(self) -> float:
        """Expected squared error of the output function."""
        return self._named("squared_error")

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
    output: Output = None,
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
    output : "kl", "cosine", Target or function, optional
        What counts: KL of the next token (the default for causal models), the angle of the
        mean-pooled embedding (the default for encoders), or the squared error of any
        differentiable function of `Outputs` (`.hidden`, `.logits`, `.embedding`).
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
    error = errors[name]
    return replace(error, change=as_change(change, prompt).name)


def output_errors(
    model: Any,
    text: Any,
    changes: Mapping[str, Any],
    *,
    output: Output = None,
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
    for one in changes.values() if isinstance(changes, Mapping) else ():
        check_model(one, model)
    if not isinstance(changes, Mapping) or not changes:
        raise BadInput("Give changes by name, like {'few': al.Threshold(24)}; at least one.")
    target = choose_target(network, output)
    count = checks.count(probes, "probes")
    root = checks.count(seed, "seed", smallest=0)
    size = None if prompt is None else checks.count(prompt, "prompt", smallest=2)
    encoded = encode(model, text, truncate=truncate)
    tokens = len(encoded.positions)
    bound = {name: as_change(one, size).bound_to(network, tokens) for name, one in changes.items()}
    prompts = {one.prompt for one in bound.values()}
    if len(prompts) > 1:
        raise BadInput(
            "Changes after a prompt and changes of a whole text need calls of their own."
        )
    after = prompts.pop()
    if after is not None:
        target = target.from_position(max(after, target.first))
    starts = {one.start for one in bound.values() if isinstance(one, SampledKeys)}
    if len(starts) > 1:
        raise BadInput("Plans for different numbers of decoded tokens need calls of their own.")
    if starts not in ({0}, set()):
        target = target.from_position(max(starts.pop(), target.first))
    accumulators = _Accumulators(network, bound, tokens, count)
    passed = probe(network, encoded, target, count, root, accumulators.add)
    results = {}
    for name, change in bound.items():
        terms, exact_bias = accumulators.terms(name), None
        if isinstance(change, SampledKeys) and change.biased:
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


class _Accumulators:
    """Accumulators of several changes; those of a class that allows it share their passes."""

    def __init__(
        self, network: Any, changes: Mapping[str, Change], tokens: int, probes: int
    ) -> None:
        kinds: dict[Any, list[str]] = {}
        for name, one in changes.items():
            kinds.setdefault(type(one) if one.shares_passes else name, []).append(name)
        self.places: dict[str, tuple[Accumulator, int]] = {}
        for names in kinds.values():
            first, *others = (changes[name] for name in names)
            own = first.accumulator(network, tokens, probes, others)
            self.places |= {name: (own, place) for place, name in enumerate(names)}
        self.every = list({id(own): own for own, _ in self.places.values()}.values())

    def add(self, layer: ProbedLayer) -> None:
        for one in self.every:
            one.add(layer)

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
