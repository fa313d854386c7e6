"""The planner: the cheapest samplers of a family that keep a model's output within a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.eviction.rules import EvictionRule
from attnlimit.models.sampled import SamplerTable
from attnlimit.planning.allocation import (
    UNITS,
    Choice,
    SamplerGrid,
    SizeErrors,
    allocate,
    cheapest_common,
    constrained,
    interpolate,
    next_factor,
)
from attnlimit.planning.calibration import CalibrationSet, Candidates, TextTerms, calibration_of
from attnlimit.planning.changes import is_biased
from attnlimit.planning.cost import CostModel
from attnlimit.planning.error import disagreement
from attnlimit.planning.joint import MINIMISE, JointErrors, joint_errors
from attnlimit.planning.plan import Plan, blame_layers
from attnlimit.planning.precision import Quantize
from attnlimit.planning.target import Target, given_target
from attnlimit.samplers import Sampler

DECODING_FAMILIES = ("index", "two-level")
Read = tuple[Plan, Array]
"""A plan, and the share of its error that reading few keys causes in each head."""


def plan(
    model: Any,
    texts: Any = None,
    *,
    kl: float | None = None,
    perplexity: float | None = None,
    cosine: float | None = None,
    target: Target | None = None,
    decode: int | None = None,
    scheme: str | Sampler | None = None,
    per: str = "model",
    minimise: str | None = None,
    evict: EvictionRule | None = None,
    quantize: Quantize | None = None,
    machine: CostModel | None = None,
    probes: int | None = None,
    margin: float | None = None,
    seed: int | None = None,
    truncate: bool = False,
) -> Plan:
    """Plan which keys to read so that a model's output stays within a target.

    Parameters
    ----------
    model : LoadedModel, transformers model, or captures
        A capture, or a list of them, that keeps the output's gradients (`capture(...,
        probes=4)`) stands for the model and its text; nothing is run then.
    texts : a text or a list of them
        Strings, token ids or ready inputs, such as the model will read.
    kl, perplexity, cosine : float
        The target, one of them: KL of the next token in nats; the factor by which perplexity may
        grow, such as 1.01; the cosine that an encoder's embedding must keep, such as 0.999.
    target : Target, optional
        A target of your own class, in place of those.
    decode : int, optional
        Sample only the queries of the last `decode` tokens of each text, as in generation after a
        prompt that is read densely.
    scheme : str or sampler, optional
        The family whose sizes are chosen: "threshold" (the default), "index" or "two-level", which
        `fast_decoding` runs, or a sampler such as `al.Keep(al.TopK(32), sample=32)`, which stands
        for all its sizes. With `decode`, by default the faster one of "index" and "two-level".
    per : "model", "layer" or "head"
        What has a size of its own.
    minimise : "bytes_read", "bytes_stored" or "milliseconds", optional
        Buy keys read, bits of every layer and the share of a prompt's keys that is evicted
        together, for the least bytes that a decoded token reads, bytes that the cache holds, or
        time of attention. The last half of each text is decoded, unless `decode` says otherwise.
    evict : EvictionRule, optional
        A rule that cuts the cache as well; its predicted error is part of the target.
    quantize : Quantize, optional
        A precision of the cache; its predicted error is part of the target.
    machine : CostModel, optional
        Speed of the machine that decodes, `al.models.cost_model()` for this one; that of a usual
        server by default.
    probes : int, optional
        Backward passes for each text, 4 by default; captures have theirs, and their seed.
    margin : float, optional
        Factor between the predicted mean and the target. By default the spread between the texts
        decides, so that nine texts of ten keep the target; with one text the target is met on it.
    """
    named = (("kl", kl), ("perplexity", perplexity), ("cosine", cosine))
    chosen = given_target(named, target)
    if chosen is None:
        raise BadInput("Give one target, kl=0.01, perplexity=1.01 or cosine=0.999; got none.")
    calibration = calibration_of(model, texts, chosen, probes=probes, seed=seed, truncate=truncate)
    options: dict[str, Any] = {"per": per, "margin": margin, "evict": evict, "quantize": quantize}
    options |= {"machine": machine, "scheme": scheme, "minimise": minimise, "decode": decode}
    return make_plans(calibration, [chosen], **options)[0]


def make_plans(
    calibration: CalibrationSet,
    targets: Sequence[Target],
    *,
    scheme: str | Sampler | None = None,
    per: str = "model",
    margin: float | None = None,
    decode: int | None = None,
    evict: EvictionRule | None = None,
    quantize: Quantize | None = None,
    minimise: str | None = None,
    machine: CostModel | None = None,
    complete: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> list[Plan]:
    """Plan for several targets of one kind on a calibration set; see `plan`.

    The first target's plan is `complete`: it is run once to be checked, and has sensitivities and
    the keys that heads of a group read together. `progress(done, total)` is
    called after each text.
    """
    checks.one_of(per, UNITS, "per")
    precisions = None if quantize is None else (quantize,) * calibration.shape[0]
    knobs: dict[str, Any] = {"evict": evict, "quantize": precisions, "progress": progress}
    knobs["margin"] = None if margin is None else checks.positive(margin, "margin")
    knobs["decode"] = None if decode is None else checks.count(decode, "decode")
    if minimise is None:
        decoding = scheme is None and decode is not None and calibration.causal
        families = DECODING_FAMILIES if decoding else (scheme or "threshold",)
        plans = _sampled_plans(calibration, targets, families, per, machine=machine, **knobs)
    else:
        checks.one_of(minimise, MINIMISE, "minimise")
        if not calibration.causal:
            raise BadInput(
                f"{calibration.name} reads all its tokens at once and has no cache; leave out "
                "minimise, or give a causal model."
            )
        if per != "model":
            raise BadInput("A joint plan has one threshold: leave out per with minimise.")
        knobs["decode"] = decode or min(calibration.tokens) // 2
        families = DECODING_FAMILIES if scheme is None else (scheme,)
        errors = joint_errors(
            calibration,
            minimise=minimise,
            families=families,
            machine=machine or CostModel(),
            **knobs,
        )
        plans = [_joint_plan(calibration, target, errors) for target in targets]
    first, *others = plans
    return [_completed(calibration, *first) if complete else first[0], *(p for p, _ in others)]


def _joint_plan(calibration: CalibrationSet, target: Target, errors: JointErrors) -> Read:
    """Plan that buys keys read, bits and evictions together."""
    choice = errors.choose(target)
    joint = _plan(
        calibration,
        target,
        choice.by_probe,
        errors.texts[0].run.limit,
        mean_keys=float(choice.keys.mean()),
        mean_visible=errors.visible,
        per="model",
        scheme=type(choice.sampler).__name__,
        cost=errors.minimise,
        price=0.0,
        dense_price=0.0,
        decode=errors.decode,
        heads=_uniform(calibration, choice.sampler),
        evict=choice.evict,
        quantize=choice.quantize,
        rounding=None if choice.quantize is None else choice.rounding,
        machine=errors.machine,
        losses={name: float(loss.mean()) for name, loss in choice.losses.items()},
        contributions=np.sum(list(choice.by_head.values()), axis=0),
        keys=choice.keys,
    )
    price, dense = joint.costs()[errors.minimise]
    priced = joint.model_copy(update={"price": price, "dense_price": dense})
    return priced, choice.by_head["keys read"]


def _sampled_plans(
    calibration: CalibrationSet,
    targets: Sequence[Target],
    families: Sequence[str | Sampler],
    per: str,
    *,
    margin: float | None,
    decode: int | None,
    evict: EvictionRule | None,
    quantize: tuple[Quantize | None, ...] | None,
    machine: CostModel | None,
    progress: Callable[[int, int], None] | None,
) -> list[Read]:
    """Plans of the fewest keys read, beside a given precision and eviction."""
    grids = [SamplerGrid.of(family, min(calibration.tokens)) for family in families]
    if evict is not None:
        calibration.check_rule(evict)
    tables = [_uniform(calibration, s) for grid in grids for s in grid.samplers(grid.coarse)]
    biased = is_biased(tables[0])
    if biased:
        calibration.check_runs()
    precisions = [] if quantize is None else [quantize]
    candidates = Candidates(tables, decode, precisions, [] if evict is None else [evict])
    texts = calibration.every_text(candidates, progress, with_output=biased)
    losses = [_other_losses(text, quantize is not None, evict) for text in texts]
    rounding = None
    if quantize is not None:
        rounding = np.mean([text.rounding()[0].sum(2).mean(-1) for text in texts], axis=0)
    parts = {name: float(np.mean([loss[name] for loss in losses])) for name in losses[0]}
    _check_rest(targets[0], sum(parts.values()), evict, quantize, rounding)
    errors, first = [], 0
    for grid in grids:
        last = first + len(grid.coarse)
        sized = [interpolate(text.part(first, last), grid) for text in texts]
        pairs = zip(sized, losses, strict=True)
        errors.append([replace(size, added=sum(loss.values())) for size, loss in pairs])
        first = last
    plans = []
    for target in targets:
        made: list[Read] = []
        for grid, of_grid in zip(grids, errors, strict=True):
            options: list[Sampler | None] = [*grid.samplers(grid.fine), None]
            choice, sized = _choose(
                calibration, target, per, margin, texts, of_grid, options, biased
            )
            by_probe = np.array([text.by_probe(choice) for text in sized])
            reading = max(0.0, float(by_probe.mean()) - sum(parts.values()))
            mean_keys = float(np.mean([text.mean_keys(choice) for text in sized]))
            visible = float(np.mean([text.sums.mean_visible for text in texts]))
            shares = np.mean([text.at(text.shares(), choice) for text in sized], axis=0)
            sampled = _plan(
                calibration,
                target,
                by_probe,
                texts[0].run.limit,
                mean_keys=mean_keys,
                mean_visible=visible,
                per=per,
                scheme=type(grid.family).__name__,
                cost="read",
                price=mean_keys,
                dense_price=visible,
                decode=decode,
                heads=_table(choice, options),
                evict=evict,
                quantize=quantize,
                rounding=rounding,
                machine=None if decode is None else machine or CostModel(),
                losses={"keys read": reading} | parts,
                contributions=shares,
                keys=np.mean([text.at(text.keys, choice) for text in sized], axis=0),
            )
            made.append((sampled, shares))
        fastest = min(made, key=lambda read: read[0].milliseconds()[1]) if made[1:] else made[0]
        plans.append(fastest)
    return plans


def _other_losses(terms: TextTerms, rounded: bool, evict: EvictionRule | None) -> dict[str, Array]:
    """Loss of a given precision and eviction along the probes, by knob (K,)."""
    losses: dict[str, Array] = {}
    if rounded:
        by_part = terms.rounding()[0].sum((1, 2))
        losses |= dict(zip(("key bits", "value bits"), by_part, strict=True))
    if evict is not None:
        losses["eviction"] = terms.eviction_of(evict)[0]
    return losses


def _choose(
    calibration: CalibrationSet,
    target: Target,
    per: str,
    margin: float | None,
    terms: Sequence[TextTerms],
    errors: list[SizeErrors],
    options: Sequence[Sampler | None],
    biased: bool,
) -> tuple[Choice, list[SizeErrors]]:
    """Cheapest sizes within a target, and the errors they were chosen by."""
    largest = target.distance
    assert largest is not None

    def choose() -> Choice:
        def allowed(choice: Choice) -> bool:
            values = np.array([text.by_probe(choice).mean() for text in errors])
            return bool(constrained(values, margin) <= largest)

        if per == "model":
            return cheapest_common(errors, allowed)
        return allocate(errors, calibration.shape[1] if per == "layer" else 1, allowed)

    choice = choose()
    for _ in range(3 if biased else 0):
        table = _table(choice, options)
        errors = [
            size.with_bias(choice, calibration.bias(text, terms[text], table))
            for text, size in enumerate(errors)
        ]
        choice = choose()
    return choice, errors


def _plan(
    calibration: CalibrationSet, target: Target, by_probe: Array, limit: float, **fields: Any
) -> Plan:
    """Plan that was not run yet; `by_probe` (T, K) is its error on every text by each probe."""
    values = by_probe.mean(1)
    trusted = bool(values.mean() <= limit)
    return Plan(
        target=target,
        predicted=float(values.mean()),
        stderr=float(np.sqrt((by_probe.var(1, ddof=1) / calibration.probes).sum()) / len(values)),
        next_text=float(values.mean() * next_factor(values)),
        measured=None,
        measured_stderr=None,
        trusted=trusted,
        doubt="" if trusted else f"the target is beyond {limit:.3g}, where predictions hold",
        tokens=calibration.tokens,
        probes=calibration.probes,
        model=calibration.name,
        weights=calibration.weights,
        architecture=calibration.architecture,
        number=calibration.number,
        sensitivity=None,
        kv_keys=None,
        **fields,
    )


def _completed(calibration: CalibrationSet, plan: Plan, reading: Array) -> Plan:
    """Return a plan with what only runs of it show.

    A run on the first text, which trust is withdrawn by; nats that the next token loses for a
    squared error of each head, where errors can be estimated from the keys that are read; and the
    keys of each key-value head that some query head of its group reads.
    """
    update: dict[str, Any] = {}
    after = plan.evict is None or plan.decode is not None
    run = calibration.measured(plan) if after else None
    if run is not None:
        update = {"measured": run[0], "measured_stderr": run[1]}
        reason = disagreement(plan.predicted, plan.stderr, *run) if len(plan.tokens) == 1 else ""
        if reason and plan.trusted:
            update |= {"trusted": False, "doubt": reason}
    if plan.target.measure != "kl":
        return plan.model_copy(update=update)
    squares, shared = calibration.squared_errors([list(row) for row in plan.heads], plan.decode)
    estimated = all(
        s.draws in ("independent", "pages") and s.weighted for s in plan.samplers().values()
    )
    sensitivity = reading / np.maximum(squares, 1e-30) * (squares > 0)
    update |= {"sensitivity": sensitivity if estimated else None, "kv_keys": shared}
    return plan.model_copy(update=update)


def _check_rest(
    target: Target,
    added: float,
    evict: EvictionRule | None,
    quantize: tuple[Quantize | None, ...] | None,
    rounding: Array | None,
) -> None:
    """Refuse changes whose own error is past the target already."""
    assert target.distance is not None
    if added < target.distance:
        return
    changes: list[Any] = [evict, None if quantize is None else quantize[0]]
    names = " and ".join(change.name for change in changes if change is not None)
    more = "keep more keys" if quantize is None else "take more bits"
    blame = "" if rounding is None else f" ({blame_layers(rounding)})"
    raise BadInput(
        f"{names} costs {added:.3g}{target.unit} alone{blame}, above the target of "
        f"{target.distance:.3g}: {more}, or allow a larger loss."
    )


def _uniform(calibration: CalibrationSet, sampler: Sampler | None) -> SamplerTable:
    layers, heads = calibration.shape
    return [[sampler] * heads for _ in range(layers)]


def _table(choice: Choice, options: Sequence[Sampler | None]) -> SamplerTable:
    return [[options[index] for index in row] for row in choice.tolist()]
