"""`attnlimit plan`: keys to read so that a model's output stays within a target."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

import attnlimit
from attnlimit import checks
from attnlimit.cli.options import (
    ARTICLE,
    PANEL,
    AsJson,
    Device,
    Dtype,
    Model,
    PassageTokens,
    Pickled,
    Texts,
    advanced,
    html,
    print_json,
    progress_bar,
    say,
    whole,
)
from attnlimit.errors import BadInput

if TYPE_CHECKING:
    from attnlimit.models.captures import Capture
    from attnlimit.models.loading import LoadedModel
    from attnlimit.planning.calibration import CalibrationSet
    from attnlimit.planning.comparison import Comparison
    from attnlimit.planning.passages import Passages
    from attnlimit.planning.target import Target
    from attnlimit.report.model_page import PageSource


def plan(
    model: Model = "smollm2",
    text: Texts = None,
    tokens: PassageTokens = 512,
    parts: Annotated[int, whole("Passages of each text to plan on.", **PANEL)] = 4,
    capture: Annotated[
        str | None,
        advanced("Capture folder, or tensors q.npy k.npy v.npy, in place of model and text."),
    ] = None,
    kl: Annotated[
        float | None,
        Option(help="Maximum mean next-token KL divergence, in nats; 0.01 for causal models."),
    ] = None,
    perplexity: Annotated[
        float | None, Option(help="Maximum factor of the perplexity, such as 1.01.")
    ] = None,
    cosine: Annotated[
        float | None, Option(help="Minimum cosine of the embedding; 0.999 for encoders.")
    ] = None,
    quick: Annotated[bool, Option("--quick", help="Plan without a measurement.")] = False,
    out: Annotated[Path | None, Option(help="Plan file to write, such as plan.json.")] = None,
    page: Annotated[
        Path | None, Option(help="Page to write, with other samplers measured.", callback=html)
    ] = None,
    json: AsJson = False,
    target: Annotated[str | None, advanced("Another registered target, NAME:VALUE.")] = None,
    decode: Annotated[
        int | None,
        whole("Last tokens of a passage that are sampled, as in generation.", **PANEL),
    ] = None,
    per: Annotated[str, advanced("Unit with its own size: model, layer or head.")] = "model",
    cost: Annotated[
        str,
        advanced("Minimised cost: keys read (read), bytes moved (bytes) or keys stored (stored)."),
    ] = "read",
    scheme: Annotated[
        str | None,
        advanced("Sampler family: threshold, index, two-level, or a sampler such as top-k:64+192."),
    ] = None,
    minimise: Annotated[
        str | None,
        Option(
            help="Buy keys read, bits and evictions together, for the least bytes_read, "
            "bytes_stored or milliseconds."
        ),
    ] = None,
    evict: Annotated[str | None, advanced("Eviction rule of the cache, such as 0.5.")] = None,
    quantize: Annotated[
        str | None,
        Option(help="Precision of the cache, such as q4_0, q8_0/q4_0, int4, fp8 or 8/4 bits."),
    ] = None,
    probes: Annotated[
        int | None, whole("Backward passes for each passage; 4 by default.", smallest=2, **PANEL)
    ] = None,
    repeats: Annotated[int, whole("Runs of a measurement.", smallest=2, **PANEL)] = 3,
    workers: Annotated[int, whole("Processes that read a capture's layers.", **PANEL)] = 1,
    seed: Annotated[int, whole("Seed of probes and draws.", smallest=0, **PANEL)] = 0,
    device: Device = "auto",
    dtype: Dtype = None,
    pickled_weights: Pickled = None,
    two_sided: Annotated[
        bool, advanced("Own tensors: queries see later keys too.", "--two-sided")
    ] = False,
    more_files: Annotated[list[str] | None, Argument(metavar="[k.npy v.npy]", hidden=True)] = None,
) -> None:
    """Plan which keys a model reads so that its output stays within a target.

    The plan is predicted from backward passes, then measured on a passage not planned on. A
    capture that keeps gradients (attnlimit capture --probes 4) is planned without its model.
    """
    if quick and page is not None:
        raise BadInput("A page shows what was measured: leave out --quick, or --page.")
    if two_sided and not more_files:
        raise BadInput("--two-sided is for own tensors: --capture q.npy k.npy v.npy.")
    if more_files and capture is None:
        raise BadInput(f"{more_files[0]!r} is not understood; give files after --capture.")
    from attnlimit.models.eviction.rules import parse_rule
    from attnlimit.models.loading import load_once
    from attnlimit.planning.allocation import UNITS, SamplerGrid
    from attnlimit.planning.calibration import CaptureCalibration, calibration_of
    from attnlimit.planning.comparison import compare
    from attnlimit.planning.joint import MINIMISE
    from attnlimit.planning.passages import Passages, StoredCaptures
    from attnlimit.planning.planner import COSTS
    from attnlimit.planning.precision import Quantize
    from attnlimit.planning.probes import kept_probes
    from attnlimit.planning.target import default_target, given_target

    checks.one_of(per, UNITS, "--per")
    checks.one_of(cost, COSTS, "--cost")
    if minimise is not None:
        checks.one_of(minimise, MINIMISE, "--minimise")
    SamplerGrid.of(scheme or "threshold", 64)
    rule = None if evict is None else parse_rule(evict)
    precision = None if quantize is None else Quantize.parse(quantize)
    options = {
        "quantize": precision,
        "evict": rule,
        "per": per,
        "cost": cost,
        "scheme": scheme,
        "decode": decode,
        "minimise": minimise,
    }
    named = [("kl", kl), ("perplexity", perplexity), ("cosine", cosine)]
    wanted = given_target(named, _registered_target(target))
    loaded, passages, texts = None, None, text or [ARTICLE]
    pool: Any = nullcontext() if workers == 1 else ProcessPoolExecutor(workers)
    with pool as processes, progress_bar("passages", shown=not json) as progress:
        calibration: CalibrationSet
        if capture is not None:
            paths = [capture, *(more_files or ())]
            stored = StoredCaptures.at(paths, causal=not two_sided).captures()
            wanted = wanted or usual_target(kept_probes(stored[0]).output)
            calibration = CaptureCalibration(stored, wanted, processes.map if processes else map)
            source = capture_source(capture, stored[0])
        else:
            loaded = load_once(model, pickled_weights, device, dtype)
            passages = Passages.read(loaded, texts, tokens=tokens, parts=parts)
            wanted = wanted or usual_target(default_target(loaded.model))
            calibration = calibration_of(loaded, passages.ids, wanted, probes=probes, seed=seed)
            source = text_source(loaded, passages, texts, model, parts)
        shown = {"minimise": minimise, "quantize": quantize, "evict": evict, "decode": decode}
        extra = [f" --{name} {quote(str(one))}" for name, one in shown.items() if one is not None]
        source = replace(source, options=source.options + "".join(extra))
        result = compare(
            None if quick else loaded,
            passages,
            calibration,
            wanted,
            options=options,
            repeats=repeats,
            seed=seed,
            curves=page is not None,
            progress=progress,
        )
    written = None if out is None else result.plan.write(out)
    if page is not None:
        write_plan_page(result, source, page, seed)
    show(result, json=json, quick=quick, plan=written, page=page)


def _registered_target(text: str | None) -> Target | None:
    """Read NAME:VALUE."""
    from attnlimit.planning.target import target_of

    if text is None:
        return None
    name, _, value = text.partition(":")
    try:
        number = float(value)
    except ValueError:
        raise BadInput(f"--target is NAME:VALUE, got {text!r}.") from None
    return target_of(name, number)


def usual_target(name: str) -> Target:
    """Return a target at its default value."""
    from attnlimit.planning.target import TARGETS, target_of

    return target_of(name, TARGETS[name].default)


def text_source(
    loaded: LoadedModel, passages: Passages, texts: list[str], model: str, parts: int
) -> PageSource:
    """Return the origin of a plan of a model on texts, for its page."""
    from attnlimit.report.model_page import PageSource

    first = passages.planned[0]
    named = " ".join(f"--text {quote(text)}" for text in texts)
    options = f"--model {quote(model)} {named} --tokens {passages.tokens} --parts {parts}"
    text = first.text, tuple(texts[1:]), first.source, first.licence
    return PageSource(options, *text, loaded.licence, tuple(loaded.notes))


def capture_source(folder: str, capture: Capture) -> PageSource:
    """Return the origin of a plan of a capture, for its page."""
    from attnlimit.planning.passages import passage_of
    from attnlimit.report.model_page import PageSource

    known, about = passage_of(capture, folder), capture.source
    licence, notes = str(about.get("licence", "unknown")), map(str, about.get("notes", ()))
    text = known.text, (), known.source, known.licence
    return PageSource(f"--capture {quote(folder)}", *text, licence, tuple(notes))


def show(
    result: Comparison, *, json: bool, quick: bool, plan: Path | None, page: Path | None
) -> None:
    """Print a plan and the paths of its files."""
    if json:
        run = result.evaluation
        value, error = (None, None) if run is None else run.distance(result.plan.target.measure)
        content = {**result.plan.to_dict(), "evaluated": value, "evaluated_stderr": error}
        print_json({**content, "unseen": result.unseen, "file": plan, "page": page})
        return
    say(*(str(result.plan).splitlines() if quick else result.lines()))
    if page is not None:
        say(f"page  {page.resolve()}")
    if plan is not None:
        model = result.plan.model
        again = f"attnlimit evaluate --model {model} --plan {plan} --text YOUR_TEXT.txt"
        say(f"plan  {plan}; measure it on a text of your own: {again}")


def write_plan_page(result: Comparison, source: PageSource, path: Path, seed: int) -> Path:
    """Write the page of a plan."""
    from attnlimit.report.model_page import model_page
    from attnlimit.report.page import write_page
    from attnlimit.runs.folder import versions

    made = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"created": made, "version": attnlimit.__version__, "versions": versions()}
    text = model_page(record | {"config": {"seed": seed}}, result, source, path.parent)
    return write_page(path, text)
