"""A plan beside its alternatives: other targets, other samplers, and a run on unseen text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.models.loading import LoadedModel
from attnlimit.models.texts import Passages
from attnlimit.planning.calibration import CalibrationSet
from attnlimit.planning.error import Evaluation, OutputError, evaluate, output_errors
from attnlimit.planning.plan import Plan
from attnlimit.planning.planner import make_plans
from attnlimit.planning.precision import Quantize
from attnlimit.planning.target import Target
from attnlimit.result import format_pm
from attnlimit.samplers import Keep, Sampler, SinksAndRecent, SinksAndWindow, Threshold, TopK, TopP
from attnlimit.samplers.spec import sampler_spec

NAMES = {"minilm": "MiniLM", "smollm2": "SmolLM2"}
PREDICTED = {
    "threshold": tuple(np.geomspace(1 / 32, 4, 15).tolist()),
    "top-k + sample": (1 / 16, 1 / 8, 1 / 4, 1 / 2),
}
"""Sizes over the context at which samplers that draw are predicted."""
MEASURED = {
    "threshold": (1 / 16, 1 / 8),
    "top-k + sample": (1 / 8, 1 / 4),
    "top-k": (1 / 8, 1 / 4, 1 / 2, 3 / 4),
    "top-p": (0.9, 0.97, 0.99),
    "sinks + recent": (1 / 8, 1 / 4, 1 / 2),
}
"""Sizes over the context at which samplers are run; of top-p the shares of the weight."""
CACHE_TYPES = ("q8_0", "q8_0/q4_0", "q5_0", "q4_0", "int8", "int4", "fp8")
"""Cache types of other programs whose loss a page states."""
COLUMNS = ("law", "scheme", "sampler", "keys", "visible", "error", "stderr")
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Comparison:
    """A plan, the plans for other targets, its evaluation, and curves of other samplers."""

    plan: Plan
    alternatives: tuple[Plan, ...] = ()  # for targets in increasing order, the plan among them
    evaluation: Evaluation | None = None
    unseen: bool = False  # whether the evaluated passage was not planned on
    curves: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=COLUMNS))
    cache_types: Mapping[str, OutputError] = field(default_factory=dict)  # predicted, by name

    @property
    def model(self) -> str:
        """Name of the model."""
        return NAMES.get(self.plan.model, self.plan.model)

    def headline(self) -> str:
        """The result in one sentence."""
        plan, allowed = self.plan, float(self.plan.target.distance)
        if plan.target.measure == "cosine_loss":
            return (
                f"{self.model} keeps its embedding within {100 * allowed:.3g} % "
                f"reading {100 * plan.mean_keys / plan.mean_visible:.0f} % of its keys."
            )
        if plan.joint:
            return f"{self.model}: {plan.priced()} for {allowed:.3g}{plan.target.unit}."
        return (
            f"{self.model} reads {plan.mean_keys:.0f} of {plan.mean_visible:.0f} keys "
            f"for {allowed:.3g}{plan.target.unit}."
        )

    def meaning(self) -> str:
        """Definitions of the headline's numbers."""
        plan, allowed = self.plan, float(self.plan.target.distance)
        if plan.joint:
            return (
                "Keys read, bits and evictions are chosen together, for a mean KL divergence of "
                f"the next token of at most {allowed:.3g} nats."
            )
        read = f"A query reads {plan.mean_keys:.1f} of the {plan.mean_visible:.0f} keys"
        if plan.target.measure == "kl":
            return (
                f"{read} (earlier tokens, the average causal context of a text of "
                f"{max(plan.tokens)} tokens), on average over all heads. The target is a mean KL "
                f"divergence of the next token of at most {allowed:.3g} nats."
            )
        return (
            f"{read} (tokens) that it sees, on average over all heads. The target is a cosine of "
            f"at least {1 - allowed:.6g} between the text's embedding and that of full attention."
        )

    def prediction(self) -> str:
        """Predicted error."""
        plan, unit = self.plan, self.plan.target.unit
        count = len(plan.tokens)
        passages = "1 passage" if count == 1 else f"{count} passages"
        return (
            f"Predicted from {passages} of text: {format_pm(plan.predicted, plan.stderr)}{unit}; "
            f"nine of ten other passages should stay below {plan.next_text:.2g}{unit}."
        )

    def measurement(self) -> str:
        """Measured error."""
        run, unit = self.evaluation, self.plan.target.unit
        if run is None:
            return "Not measured: a capture has no model to run."
        where = "a passage that was not planned on" if self.unseen else "the passage planned on"
        value, stderr = run.distance(self.plan.target.measure)
        text = f"Measured on {where}, {run.repeats} runs: {format_pm(value, stderr)}{unit}"
        if self.unseen and value - 3 * np.nan_to_num(stderr) > self.plan.next_text:
            text += ", above that bound (plan on more texts like it)"
        if run.perplexity is None or run.dense_perplexity is None or run.top1 is None:
            return f"{text}."
        return (
            f"{text}; perplexity {run.perplexity:.4g} instead of {run.dense_perplexity:.4g}, the "
            f"same most likely token at {100 * run.top1:.1f} % of the positions."
        )

    def rule(self) -> str:
        """How keys are chosen."""
        samplers = {sampler for row in self.plan.heads for sampler in row}
        if len(samplers) > 1:
            return f"Each {self.plan.per} has its own size."
        sampler = samplers.pop()
        if sampler is None and self.plan.joint:
            return "Every head reads all keys that the cache holds."
        if sampler is None:
            return "Every head reads all keys: no smaller plan keeps the target."
        if sampler.levels == 1:
            return (
                f"One rule for every head: read each key whose attention weight is at least "
                f"1/{sampler.threshold:.0f}, and a random sample of the rest."
            )
        return f"Every head reads the {sampler.name}."

    def storage(self) -> str:
        """What the cache holds and a token reads, if the cache is smaller than the model's own."""
        plan = self.plan
        if plan.quantize is None and plan.evict is None:
            return ""
        (read, all_read), (stored, all_stored), _ = plan.costs().values()
        kept = "all keys" if plan.evict is None else f"{100 * plan.evict.keep:.3g} % of the prompt"
        return (
            f"The cache keeps {kept} in {plan.stored_bits():.2g} bits a number, "
            f"{stored / 1e6:.3g} of {all_stored / 1e6:.3g} MB at {max(plan.tokens)} tokens, and a "
            f"decoded token reads {read / 1e6:.3g} of {all_read / 1e6:.3g} MB."
        )

    def rival(self) -> str:
        """Keys that top-k would read for the same error, if its curve is known."""
        if self.plan.joint:
            return ""
        curves, target = self.curves, float(self.plan.target.distance)
        best = curves[(curves.scheme == "top-k") & (curves.law == "measured")]
        ours = curves[(curves.scheme == "threshold") & (curves.law == "predicted")]
        keys, own = _keys_for(best, target), _keys_for(ours, target)
        if own is None:
            return ""
        if keys is not None:
            times = f"{keys / own:.1f} times"
        elif len(best) and best.error.min() > target and best["keys"].max() > own:
            times = f"more than {best['keys'].max() / own:.1f} times"
        else:
            return ""
        return f"For the same error, top-k alone would read {times} as many keys."

    def lines(self) -> list[str]:
        """Return the result as a terminal shows it."""
        parts = [self.meaning(), self.prediction(), self.measurement(), self.rule(), self.rival()]
        if len(self.plan.losses) > 1:
            parts[3:4] = [line.strip() for line in self.plan.knob_lines()]
        if not self.plan.trusted:
            parts.append(f"Not trusted: {self.plan.doubt}.")
        if self.evaluation is not None:
            parts += self.evaluation.notes
        return [self.headline(), *(f"  {part}" for part in parts if part)]


def compare(
    loaded: LoadedModel | None,
    passages: Passages | None,
    calibration: CalibrationSet,
    target: Target,
    *,
    options: Mapping[str, Any],
    repeats: int = 3,
    seed: int = 0,
    curves: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Plan for a target, measure the plan on unseen text, and with `curves` other samplers too.

    Without a model, as from captures, nothing is measured.
    """
    distances = target.around() if curves else [target.distance]
    others = [type(target)(distance=d) for d in distances]  # type: ignore[call-arg]
    ordered = [target, *(other for other in others if other.distance != target.distance)]
    plans = make_plans(calibration, ordered, progress=progress, **options)
    sorted_plans = tuple(sorted(plans, key=lambda plan: float(plan.target.distance)))
    if loaded is None or passages is None:
        return Comparison(plans[0], sorted_plans)
    ids = list((passages.unseen or passages.planned[0]).ids)
    run = evaluate(loaded, ids, plans[0], repeats=repeats, seed=seed)
    rows: list[dict[str, Any]] = []
    types: dict[str, OutputError] = {}
    if curves:
        rows = list(_curves(loaded, ids, target, calibration.probes, repeats, seed, progress))
        if loaded.causal:
            formats = {name: Quantize.parse(name) for name in CACHE_TYPES}
            fits = {n: form for n, form in formats.items() if _divides(form, calibration)}
            how: dict[str, Any] = {"probes": calibration.probes, "seed": seed, "check": False}
            types = output_errors(loaded, ids, fits, output=target, **how) if fits else {}
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return Comparison(plans[0], sorted_plans, run, passages.unseen is not None, frame, types)


def _divides(precision: Quantize, calibration: CalibrationSet) -> bool:
    """Whether groups of a precision divide the model's heads."""
    width = calibration.architecture["head_dim"]
    return all(form is None or not width % (form.group or 1) for form in precision.formats)


def _curves(
    loaded: LoadedModel,
    ids: list[int],
    target: Target,
    probes: int,
    repeats: int,
    seed: int,
    progress: Progress | None,
) -> Iterator[dict[str, Any]]:
    """Rows of predicted and measured errors of several samplers at several sizes."""
    drawn = {
        (scheme, sampler_spec(sampler)): sampler
        for scheme, sizes in PREDICTED.items()
        for sampler in _sized(scheme, sizes, len(ids), loaded.causal)
    }
    samplers = {spec: sampler for (_, spec), sampler in drawn.items()}
    errors = output_errors(
        loaded, ids, samplers, output=target, probes=probes, seed=seed, check=False
    )
    for scheme, spec in drawn:
        error = errors[spec]
        row = {"law": "predicted", "keys": error.mean_keys, "visible": error.mean_visible}
        yield row | {
            "scheme": scheme,
            "sampler": spec,
            "error": error.value,
            "stderr": error.stderr,
        }
        if scheme == "threshold":
            yield row | {"scheme": "bound", "error": error.bound}
    runs = [
        (scheme, sampler)
        for scheme, sizes in MEASURED.items()
        for sampler in _sized(scheme, sizes, len(ids), loaded.causal)
    ]
    for done, (scheme, sampler) in enumerate(runs, start=1):
        run = evaluate(loaded, ids, sampler, repeats=repeats, seed=seed, target=target)
        value, stderr = run.distance(target.measure)
        yield {
            "law": "measured",
            "scheme": scheme,
            "sampler": sampler_spec(sampler),
            "keys": run.mean_keys,
            "visible": run.mean_visible,
            "error": value,
            "stderr": stderr,
        }
        if progress is not None:
            progress(done, len(runs))


def _sized(scheme: str, sizes: Any, context: int, causal: bool) -> list[Sampler]:
    """Samplers of a scheme at sizes over the context, each once."""
    if scheme == "top-p":
        return [TopP(share) for share in sizes]
    counts = sorted({max(2, round(size * context)) for size in sizes})
    makers: Mapping[str, Callable[[int], Sampler]] = {
        "threshold": lambda n: Threshold(float(n)),
        "top-k": TopK,
        "top-k + sample": Keep(TopK(1), sample=1).with_size,
        "sinks + recent": (SinksAndRecent() if causal else SinksAndWindow()).with_size,
    }
    return [makers[scheme](count) for count in counts]


def _keys_for(rows: pd.DataFrame, target: float) -> float | None:
    """Keys at which a sampler's error is `target`; None where its sizes do not reach it."""
    positive = rows[rows.error > 0].sort_values("keys")
    if len(positive) < 2:
        return None
    error, keys = (np.log(positive[name].to_numpy(dtype=float)) for name in ("error", "keys"))
    falling = np.minimum.accumulate(error)
    if not falling[-1] <= np.log(target) <= falling[0]:
        return None
    return float(np.exp(np.interp(-np.log(target), -falling, keys)))
