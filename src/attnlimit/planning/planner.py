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
from attnlimit.planning.calibration import (
    CalibrationSet,
    TextTerms,
    calibration_of,
)
from attnlimit.planning.changes import is_biased
from attnlimit.planning.cost import CostModel
from attnlimit.planning.error import disagreement
from attnlimit.planning.joint import MINIMISE, joint_errors
from attnlimit.planning.plan import Plan, blame_layers
from attnlimit.planning.precision import Quantize
from attnlimit.planning.target import Target, given_target
from attnlimit.samplers import Sampler

COSTS = ("read", "bytes", "stored")
DECODING_FAMILIES = ("index", "two-level")


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
    cost: str = "read",
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
    cost : "read", "bytes" or "stored"
        What is minimised: keys that a query of a head reads; bytes of keys, values and proxies
        that a token moves; or keys that must be stored, for samplers that forget
        (`sinks-recent`). With the last two, heads that share keys have one size.
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
    options: dict[str, Any] = {"per": per, "cost": cost, "margin": margin}
    options |= {"evict": evict, "quantize": quantize}
    options |= {"machine": machine or CostModel(), "scheme": scheme, "minimise": minimise}
    return make_plans(calibration, [chosen], decode=decode, **options)[0]


def make_plans(
    calibration: CalibrationSet,
    targets: Sequence[Target],
    *,
    scheme: str | Sampler | None = None,
    per: str = "model",
    cost: str = "read",
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
    depth = calibration.shape[0]
    held = None if quantize is None else (quantize,) * depth
    if minimise is not None:
        checks.one_of(minimise, MINIMISE, "minimise")
        if not calibration.causal:
            raise BadInput(
                f"{calibration.name} reads all its tokens at once and has no cache; leave out "
                "minimise, or give a causal model."
            )
        if per != "model" or cost != "read":
            raise BadInput("A joint plan has one threshold: leave out per and cost with minimise.")
        knobs: dict[str, Any] = {"decode": decode or min(calibration.tokens) // 2, "quantize": held}
        knobs |= {"minimise": minimise, "evict": evict, "margin": margin}
        knobs |= {"machine": machine or CostModel(), "progress": progress}
        families = DECODING_FAMILIES if scheme is None else (scheme,)
        return _joint_plans(calibration, targets, families, knobs, complete)
    decoding = scheme is None and decode is not None and calibration.causal and cost == "read"
    chosen = DECODING_FAMILIES if decoding else (scheme or "threshold",)
    grids = [SamplerGrid.of(one, min(calibration.tokens)) for one in chosen]
    checks.one_of(per, UNITS, "per")
    checks.one_of(cost, COSTS, "cost")
    factor = None if margin is None else checks.positive(margin, "margin")
    decoded = None if decode is None else checks.count(decode, "decode")
    if evict is not None:
        calibration.check_rule(evict)
    if cost == "stored":
        _check_forgets(calibration, grids[0].family)
    tables = [[_uniform(calibration, s) for s in grid.samplers(grid.coarse)] for grid in grids]
    biased = is_biased(tables[0][0])
    if biased:
        calibration.check_runs()
    every = [table for of_grid in tables for table in of_grid]
    terms: list[list[TextTerms]] = [[] for _ in grids]
    errors: list[list[SizeErrors]] = [[] for _ in grids]
    losses: list[dict[str, Array]] = []
    rounding: list[Array] = []  # (2, L) of each text
    for text in range(len(calibration.tokens)):
        found = calibration.terms(
            text, every, count_bytes=cost == "bytes", decode=decoded,
            precisions=[] if held is None else [held], rules=[] if evict is None else [evict],
        )  # fmt: skip
        if not biased:
            found = _without_output(found)
        losses.append({})
        if held is not None:
            by_part = found.rounding()[0].sum((1, 2))
            rounding.append(found.rounding()[0].sum(2).mean(-1))
            losses[-1] |= dict(zip(("key bits", "value bits"), by_part, strict=True))
        if evict is not None:
            losses[-1]["eviction"] = found.eviction_of(evict)[0]
        added = sum(losses[-1].values())
        first = 0
        for number, grid in enumerate(grids):
            last = first + len(grid.coarse)
            own = replace(found, sums=found.sums.part(first, last))
            size = interpolate(own, grid, bytes_cost=cost == "bytes")
            terms[number].append(own)
            errors[number].append(replace(size, added=added))
            first = last
        if progress is not None:
            progress(text + 1, len(calibration.tokens))
    speed = machine if decoded is not None else None
    plans = []
    by_layer = None if held is None else np.mean(rounding, axis=0)
    _check_rest(targets[0], errors[0], evict, quantize, by_layer)
    for number, target in enumerate(targets):
        made = []
        for grid, own_terms, own_errors in zip(grids, terms, errors, strict=True):
            options: list[Sampler | None] = [*grid.samplers(grid.fine), None]
            choice, sized = _choose(
                calibration, target, grid, (per, cost), factor, own_terms, own_errors, options,
                biased,
            )  # fmt: skip
            one = _plan_of(
                calibration, target, grid, (per, cost), choice, options, sized, own_terms
            )
            update: dict[str, Any] = {"decode": decoded, "evict": evict, "quantize": held}
            update |= {"machine": speed, "rounding": by_layer}
            parts = {name: float(np.mean([one[name] for one in losses])) for name in losses[0]}
            update["losses"] = {"keys read": max(0.0, one.predicted - sum(parts.values()))} | parts
            made.append(one.model_copy(update=update))
        best = made[0] if len(made) == 1 else min(made, key=lambda plan: plan.milliseconds()[1])
        plans.append(_completed(calibration, best) if complete and number == 0 else best)
    return plans


def _joint_plans(
    calibration: CalibrationSet,
    targets: Sequence[Target],
    families: Sequence[str | Sampler],
    knobs: dict[str, Any],
    complete: bool,
) -> list[Plan]:
    """Plans that buy keys read, bits and evictions together, for several targets."""
    plans = []
    errors = joint_errors(calibration, families=families, **knobs)
    for number, target in enumerate(targets):
        choice = errors.choose(target)
        by_probe, reading = choice.by_probe, choice.by_head["keys read"]
        values = by_probe.mean(1)
        limit = errors.texts[0].run.limit
        trusted = bool(values.mean() <= limit)
        stderr = np.sqrt((by_probe.var(1, ddof=1) / calibration.probes).sum()) / len(values)
        plan = Plan(
            target=target,
            predicted=float(values.mean()),
            stderr=float(stderr),
            next_text=float(values.mean() * next_factor(values)),
            measured=None,
            measured_stderr=None,
            trusted=trusted,
            doubt="" if trusted else f"the target is beyond {limit:.3g}, where predictions hold",
            mean_keys=float(choice.keys.mean()),
            mean_visible=errors.visible,
            per="model",
            scheme=type(choice.sampler).__name__,
            cost=errors.minimise,  # type: ignore[arg-type]
            price=0.0,
            dense_price=0.0,
            tokens=calibration.tokens,
            decode=errors.decode,
            probes=calibration.probes,
            model=calibration.name,
            weights=calibration.weights,
            architecture=calibration.architecture,
            heads=tuple(map(tuple, _uniform(calibration, choice.sampler))),
            evict=choice.evict,
            quantize=choice.quantize,
            rounding=None if choice.quantize is None else choice.rounding,
            machine=errors.machine,
            losses={name: float(loss.mean()) for name, loss in choice.losses.items()},
            number=calibration.number,
            contributions=np.sum(list(choice.by_head.values()), axis=0),
            keys=choice.keys,
            sensitivity=None,
            kv_keys=None,
        )
        price, dense = plan.costs()[errors.minimise]
        plan = plan.model_copy(update={"price": price, "dense_price": dense})
        plans.append(_completed(calibration, plan, reading) if complete and not number else plan)
    return plans


def _choose(
    calibration: CalibrationSet,
    target: Target,
    grid: SamplerGrid,
    kinds: tuple[str, str],
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

        if kinds[0] == "model":
            return cheapest_common(errors, allowed)
        return allocate(errors, _together(calibration, *kinds), allowed)

    choice = choose()
    for _ in range(3 if biased else 0):
        table = _table(choice, options)
        pairs = enumerate(zip(terms, errors, strict=True))
        errors = [
            size.with_bias(choice, calibration.bias(text, found, table))
            for text, (found, size) in pairs
        ]
        choice = choose()
    return choice, errors


def _plan_of(
    calibration: CalibrationSet,
    target: Target,
    grid: SamplerGrid,
    kinds: tuple[str, str],
    choice: Choice,
    options: Sequence[Sampler | None],
    errors: Sequence[SizeErrors],
    terms: Sequence[TextTerms],
) -> Plan:
    by_probe = np.array([text.by_probe(choice) for text in errors])
    values = by_probe.mean(1)
    visible = [one.sums.visible / one.sums.keys[0].size / one.sums.queries for one in terms]
    per, cost = kinds
    dense = np.full(choice.shape, len(options) - 1)
    gather = np.sum if cost == "bytes" else np.mean  # bytes are those of the whole model
    price, dense_price = (
        float(np.mean([gather(text.at(text.cost, index)) for text in errors]))
        for index in (choice, dense)
    )
    limit = terms[0].run.limit
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
        mean_keys=float(np.mean([text.mean_keys(choice) for text in errors])),
        mean_visible=float(np.mean(visible)),
        per=per,  # type: ignore[arg-type]
        scheme=type(grid.family).__name__,
        cost=cost,  # type: ignore[arg-type]
        price=price,
        dense_price=dense_price,
        tokens=calibration.tokens,
        decode=None,
        probes=calibration.probes,
        model=calibration.name,
        weights=calibration.weights,
        architecture=calibration.architecture,
        heads=tuple(map(tuple, _table(choice, options))),
        evict=None,
        machine=None,
        contributions=np.mean([text.at(text.shares(), choice) for text in errors], axis=0),
        keys=np.mean([text.at(text.keys, choice) for text in errors], axis=0),
        sensitivity=None,
        kv_keys=None,
    )


def _completed(calibration: CalibrationSet, plan: Plan, reading: Array | None = None) -> Plan:
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
    shown = all(
        s.draws in ("independent", "pages") and s.weighted for s in plan.samplers().values()
    )
    shares = plan.contributions if reading is None else reading
    sensitivity = shares / np.maximum(squares, 1e-30) * (squares > 0)
    update |= {"sensitivity": sensitivity if shown else None, "kv_keys": shared}
    return plan.model_copy(update=update)


def _together(calibration: CalibrationSet, per: str, cost: str) -> int:
    """Heads of a layer that have one size."""
    heads = calibration.shape[1]
    if per == "layer":
        return heads
    return 1 if cost == "read" else heads // calibration.architecture["kv_heads"]


def _check_rest(
    target: Target,
    errors: Sequence[SizeErrors],
    evict: EvictionRule | None,
    quantize: Quantize | None,
    rounding: Array | None,
) -> None:
    """Refuse changes whose own error is past the target already."""
    added = float(np.mean([text.added for text in errors]))
    assert target.distance is not None
    if added < target.distance:
        return
    names = " and ".join(one.name for one in (evict, quantize) if one is not None)
    blame = "" if rounding is None else f" ({blame_layers(rounding)})"
    raise BadInput(
        f"{names} costs {added:.3g}{target.unit} alone{blame}, above the target of "
        f"{target.distance:.3g}: keep more, or allow more."
    )


def _check_forgets(calibration: CalibrationSet, family: Sampler) -> None:
    if not calibration.causal:
        raise BadInput(
            f"{calibration.name} reads all its tokens at once, so every key must be there: "
            'cost="stored" is for causal models.'
        )
    if not family.forgets:
        raise BadInput(
            f"{type(family).__name__} may read any key for a later query, so all of them must stay "
            'stored; plan cost="stored" with scheme="sinks-recent:4,64", which forgets.'
        )


def _uniform(calibration: CalibrationSet, sampler: Sampler | None) -> SamplerTable:
    layers, heads = calibration.shape
    return [[sampler] * heads for _ in range(layers)]


def _table(choice: Choice, options: Sequence[Sampler | None]) -> SamplerTable:
    return [[options[index] for index in row] for row in choice.tolist()]


def _without_output(terms: TextTerms) -> TextTerms:
    """Drop the dense model's output, which only biased samplers are compared with."""
    return replace(terms, run=replace(terms.run, read=terms.run.read[:0]))
