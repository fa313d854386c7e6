"""What is the cheapest way to read that keeps the model's output? Planned on texts, for the next.

Every head's predicted effect on the output is tabulated over sizes of one family of samplers, and
sizes are chosen so that the whole stays within a target: one for the model, one a layer, or one a
head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models.output.allocate import (
    PER,
    Choice,
    Sized,
    allocate,
    cheapest_common,
    interpolated,
)
from attnlimit.models.output.allowed import distance_allowed
from attnlimit.models.output.bias import is_biased
from attnlimit.models.output.family import family_of, size_grids, sized_like
from attnlimit.models.output.ground import Ground, ground_of
from attnlimit.models.output.heads import HeadErrors
from attnlimit.models.output.margin import held_below, next_factor
from attnlimit.models.output.planned import COSTS, OutputPlan
from attnlimit.models.spend.assign import Table
from attnlimit.samplers import Sampler


def plan_output(
    model: Any,
    texts: Any = None,
    *,
    kl: float | None = None,
    perplexity: float | None = None,
    cosine: float | None = None,
    scheme: str | Sampler = "threshold",
    per: str = "model",
    cost: str = "read",
    probes: int | None = None,
    margin: float | None = None,
    seed: int | None = None,
    truncate: bool = False,
) -> OutputPlan:
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
        grow, such as 1.01, of a model whose chances are true (its logarithm is the KL); the cosine
        that an encoder's embedding must keep, such as 0.999.
    scheme : "threshold", a sampler, or its text
        The family whose sizes are chosen; a sampler such as `al.Keep(al.TopK(32), sample=32)`
        stands for all its sizes.
    per : "model", "layer" or "head"
        What has a size of its own.
    cost : "read", "bytes" or "stored"
        What is made small: the keys that a query of a head reads; the bytes of keys, values and
        proxies that a token moves, with what heads that share keys read once counted once; or the
        keys that must be stored, for families that forget (`sinks-recent`). With the last two,
        heads that share keys have one size.
    probes : int, optional
        Backward passes for each text, 4 by default; captures have theirs, and their seed.
    margin : float, optional
        Factor kept between the predicted mean and the target. By default the spread between the
        texts decides, so that nine texts of ten keep the target; one text has no spread, and the
        target is met on it alone.
    """
    output, allowed = distance_allowed(kl, perplexity, cosine)
    ground = ground_of(model, texts, output, probes=probes, seed=seed, truncate=truncate)
    how: dict[str, Any] = {"scheme": scheme, "per": per, "cost": cost, "margin": margin}
    return plan_on(ground, output, [allowed], sensitive=[allowed], **how)[0]


def plan_on(
    ground: Ground,
    output: str,
    allowed: Sequence[float],
    *,
    scheme: str | Sampler = "threshold",
    per: str = "model",
    cost: str = "read",
    margin: float | None = None,
    sensitive: Sequence[float] = (),
    progress: Callable[[int, int], None] | None = None,
) -> list[OutputPlan]:
    """Plan for several targets on what `ground` knows; see `plan_output`.

    For targets that are `sensitive`, draws say how the error can be seen while it is spent, and
    how many keys the query heads that share a cache read together.
    `allowed` are KL divergences if `output` is "kl", 1 - cosine of the embedding if "cosine".
    `progress(done, total)` is called after each text.
    """
    family = family_of(scheme)
    checks.one_of(per, PER, "per")
    checks.one_of(cost, COSTS, "cost")
    kept_back = None if margin is None else checks.positive(margin, "margin")
    if cost == "stored":
        _check_forgets(ground, family)
    sizes, fine = size_grids(family, min(ground.tokens))
    options: list[Sampler | None] = [sized_like(family, size) for size in fine]
    coarse = size_tables(ground, family)
    biased = is_biased(coarse[0])
    if biased:
        ground.check_biased(family)
    found: list[HeadErrors] = []
    tables: list[Sized] = []
    for text in range(len(ground.tokens)):
        errors = ground.errors(text, coarse, bytes_too=cost == "bytes")
        tables.append(interpolated(errors, sizes, fine))
        found.append(errors if biased else _without_output(errors))
        if progress is not None:
            progress(text + 1, len(ground.tokens))

    options.append(None)

    def plan(goal: tuple[str, float], tables: list[Sized]) -> OutputPlan:
        def enough(choice: Choice) -> bool:
            values = np.array([text.by_probe(choice).mean() for text in tables])
            return held_below(values, kept_back) <= goal[1]

        def choose() -> Choice:
            if per == "model":
                return cheapest_common(tables, enough)
            return allocate(tables, _together(ground, per, cost), enough)

        choice = choose()
        if biased:
            for _ in range(3):
                tables = _corrected(ground, found, tables, choice, options)
                choice = choose()
        made = _planned(ground, goal, family, (per, cost), choice, options, tables, found)
        if goal[1] not in sensitive:
            return made
        return _as_run(ground, made)

    return [plan((output, distance), tables) for distance in allowed]


def size_tables(ground: Ground, family: Sampler) -> list[Table]:
    """Tables in which every head has the same size, for all sizes that are tabulated."""
    sizes, _ = size_grids(family, min(ground.tokens))
    nothing = np.zeros(ground.shape, dtype=np.int64)
    return [_table(nothing, [sized_like(family, size)]) for size in sizes]


def _planned(
    ground: Ground,
    goal: tuple[str, float],
    family: Sampler,
    words: tuple[str, str],
    choice: Choice,
    options: Sequence[Sampler | None],
    tables: Sequence[Sized],
    found: Sequence[HeadErrors],
) -> OutputPlan:
    by_probe = np.array([text.by_probe(choice) for text in tables])
    values = by_probe.mean(1)
    visible = [one.visible / one.keys[0].size / one.probed.tokens for one in found]
    per, cost = words
    dense = np.full(choice.shape, len(options) - 1)
    gather = np.sum if cost == "bytes" else np.mean  # bytes are those of the whole model
    price, dense_price = (
        float(np.mean([gather(text.at(text.cost, index)) for text in tables]))
        for index in (choice, dense)
    )
    return OutputPlan(
        measure={"kl": "kl", "cosine": "cosine_loss"}[goal[0]],
        target=goal[1],
        predicted=float(values.mean()),
        stderr=float(np.sqrt((by_probe.var(1, ddof=1) / ground.probes).sum()) / len(values)),
        next_text=float(values.mean() * next_factor(values)),
        mean_keys=float(np.mean([text.mean_keys(choice) for text in tables])),
        mean_visible=float(np.mean(visible)),
        per=per,
        cost=cost,
        price=price,
        dense_price=dense_price,
        scheme=type(family).__name__,
        tokens=ground.tokens,
        probes=ground.probes,
        model=ground.name,
        weights=ground.weights,
        trusted=bool(values.mean() <= found[0].probed.limit),
        heads=tuple(
            tuple(options[index] for index in row)
            for row in choice.tolist()
        ),
        contributions=np.mean([text.at(text.shares(), choice) for text in tables], axis=0),
        keys=np.mean([text.at(text.keys, choice) for text in tables], axis=0),
        sensitivity=None,
        kv_keys=None,
    )  # fmt: skip


def _together(ground: Ground, per: str, cost: str) -> int:
    """Heads of a layer that have one size."""
    heads = ground.shape[1]
    if per == "layer":
        return heads
    return 1 if cost == "read" else heads // ground.groups


def _check_forgets(ground: Ground, family: Sampler) -> None:
    if not ground.predicts:
        raise BadInput(
            f"{ground.name} asks all its queries at once, so every key must be there: "
            'a plan for what is stored (cost="stored") is for causal models.'
        )
    if not family.forgets:
        raise BadInput(
            f"{type(family).__name__} leaves every key a chance with later queries, so all of them "
            'must stay stored; plan cost="stored" with scheme="sinks-recent:4,64", which forgets.'
        )


def _as_run(ground: Ground, plan: OutputPlan) -> OutputPlan:
    """Return the plan with what only a draw of it shows.

    Nats that the next token loses for a squared error of each head, as they are seen to err, where
    errors can be seen from the keys that are read; and the keys of each key-value head that some
    query head of its group reads.
    """
    if plan.measure != "kl":
        return plan
    squares, shared = ground.seen([list(row) for row in plan.heads])
    shown = all(s.draws == "independent" and s.weighted for s in plan.samplers().values())
    felt = plan.contributions / np.maximum(squares, 1e-30) * (squares > 0)
    return replace(plan, sensitivity=felt if shown else None, kv_keys=shared)


def _table(choice: Choice, options: Sequence[Sampler | None]) -> Table:
    return [[options[index] for index in row] for row in choice.tolist()]


def _without_output(errors: HeadErrors) -> HeadErrors:
    """Let go of the dense model's output, which only biased samplers are compared with."""
    return replace(errors, probed=replace(errors.probed, read=torch.empty(0)))


def _corrected(
    ground: Ground,
    found: Sequence[HeadErrors],
    tables: Sequence[Sized],
    choice: Choice,
    options: Sequence[Sampler | None],
) -> list[Sized]:
    """Scale the squared bias that the probes see to what one pass gives at this choice."""
    layer, head = np.indices(choice.shape)
    corrected = []
    for text, (errors, table) in enumerate(zip(found, tables, strict=True)):
        whole = table.bias[choice, layer, head].sum((0, 1))
        seen = table.scale * float((whole**2).mean())
        exact = ground.bias(text, errors, _table(choice, options))
        factor = exact / seen if seen > 0 else table.bias_factor
        corrected.append(replace(table, bias_factor=factor))
    return corrected
