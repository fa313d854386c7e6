"""`attnlimit evaluate`: run a model with a sampler, a plan or an eviction rule."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from attnlimit import checks
from attnlimit.cli import options
from attnlimit.errors import BadInput

if TYPE_CHECKING:
    from attnlimit.planning.error import Evaluation, OutputError

SIZES = ("output", "common", "equal")


def evaluate(
    model: options.Model = "smollm2",
    text: Annotated[str, Option(help=options.TEXT)] = options.ARTICLE,
    tokens: options.PassageTokens = 256,
    sampler: Annotated[
        list[str] | None,
        Option(help="Sampler, such as threshold:48, top-k:64 or top-k:64+192; may be repeated."),
    ] = None,
    plan: Annotated[
        list[Path] | None, Option(help="Plan file written by attnlimit plan; may be repeated.")
    ] = None,
    evict: Annotated[
        list[str] | None,
        Option(
            help="Share of keys that the cache keeps after half of the text, such as 0.25, or a "
            "rule, such as snapkv:0.25; may be repeated."
        ),
    ] = None,
    quantize: Annotated[
        list[str] | None,
        Option(
            help="Precision of the cache, such as q4_0, q8_0/q4_0, int4, fp8 or 8/4 bits; may be "
            "repeated."
        ),
    ] = None,
    sizes: Annotated[
        str, options.advanced("Sizes of heads with --evict SHARE: output, common or equal.")
    ] = "output",
    repeats: Annotated[int, options.whole("Runs of each change.")] = 3,
    probes: Annotated[int, options.whole("Backward passes of the prediction.", rare=True)] = 4,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    json: options.AsJson = False,
) -> None:
    """Run a model on fewer keys or a smaller cache, predicted beside measured."""
    from attnlimit.models.eviction.rules import EvictionRule, parse_rule
    from attnlimit.planning.plan import Plan
    from attnlimit.planning.precision import Quantize
    from attnlimit.samplers.spec import parse_sampler

    changes: dict[str, Any] = {name: parse_sampler(name) for name in sampler or []}
    changes |= {str(path): Plan.read(path) for path in plan or []}
    changes |= {name: Quantize.parse(name) for name in quantize or []}
    rules = {name: parse_rule(name) for name in evict or []}
    if bool(changes) == bool(rules):
        raise BadInput(
            "Give changes to evaluate: --sampler threshold:48, --quantize q4_0 or --plan FILE; or "
            "--evict 0.25."
        )
    checks.one_of(sizes, SIZES, "--sizes")
    from attnlimit.models.loading import load_once
    from attnlimit.models.texts import read_passages
    from attnlimit.planning.error import evaluate as run_change
    from attnlimit.planning.error import output_errors

    loaded = load_once(model, device, dtype)
    for change in changes.values():
        if isinstance(change, Plan):
            change.check_model(loaded)
    if rules and not loaded.causal:
        raise BadInput(
            f"{model} reads all its tokens at once and has no cache to cut; give --evict with a "
            "causal model, such as --model smollm2."
        )
    ids = list(read_passages(loaded, [text], tokens, 1)[0].ids)
    with options.progress_bar("changes", shown=not json) as progress:
        if rules:
            changes = _sized(rules, sizes, loaded, ids, probes, seed)
        predictable = {
            name: change
            for name, change in changes.items()
            if not isinstance(change, EvictionRule) or change.weighted
        }
        how: dict[str, Any] = {"probes": probes, "seed": seed, "check": False}
        errors = output_errors(loaded, ids, predictable, **how) if predictable else {}
        runs = {}
        for done, (name, change) in enumerate(changes.items(), start=1):
            runs[name] = run_change(loaded, ids, change, repeats=repeats, seed=seed)
            progress(done, len(changes))
    rows = [_row(name, run, errors.get(name)) for name, run in runs.items()]
    if json:
        about = {"model": model, "text": text, "tokens": len(ids)}
        options.print_json(
            {**about, "evaluated": rows, "runs": [asdict(run) for run in runs.values()]}
        )
        return
    import pandas as pd

    options.print_table(pd.DataFrame(rows), f"{model} on {len(ids)} tokens of {text}")
    for name, run in runs.items():
        options.say(*(f"{name}: {note}" for note in run.notes))
        error = errors.get(name)
        if error is not None and error.doubt:
            options.say(f"{name}: the prediction is not trusted: {error.doubt}")
        if error is not None and error.parts:
            options.say(f"{name}: {error.blame()}")


def _sized(
    rules: dict[str, Any], sizes: str, loaded: Any, ids: list[int], probes: int, seed: int
) -> dict[str, Any]:
    """Return the rules, with the chosen sizes of heads where only a share was given."""
    from attnlimit.models.eviction.rules import Evict
    from attnlimit.planning.probes import output_weights

    shares = {name: rule for name, rule in rules.items() if rule == Evict(rule.keep)}
    if not shares or sizes == "common":
        return rules
    by: Any = sizes
    if sizes == "output":
        by = output_weights(loaded, ids[: len(ids) // 2], probes=probes, seed=seed)
    return rules | {name: Evict(rule.keep, sizes=by) for name, rule in shares.items()}


def _row(name: str, run: Evaluation, error: OutputError | None) -> dict[str, Any]:
    measure = "cosine_loss" if run.kl is None else "kl"
    value, stderr = run.distance(measure)
    row: dict[str, Any] = {
        "change": name,
        "keys": run.mean_keys,
        "average context": run.mean_visible,
        "MB": run.mean_bytes / 1e6,
        "dense MB": run.dense_bytes / 1e6,
    }
    if run.cache_bytes is not None and run.dense_cache_bytes is not None:
        row |= {"cache MB": run.cache_bytes / 1e6, "full MB": run.dense_cache_bytes / 1e6}
    row |= {
        f"{measure} predicted": None if error is None else error.value,
        "trusted": None if error is None else error.trusted,
        f"{measure} measured": value,
        "stderr": stderr,
    }
    if run.kl is not None:
        row |= {"perplexity": run.perplexity, "dense": run.dense_perplexity}
        row |= {"same top token": run.top1}
    return row
