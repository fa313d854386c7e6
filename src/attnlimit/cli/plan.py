"""`attnlimit plan`: keys to read so that a model's output stays within a target."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Context, Option

import attnlimit
from attnlimit import checks
from attnlimit.cli import options
from attnlimit.errors import BadInput

if TYPE_CHECKING:
    from attnlimit.models.captures import Capture
    from attnlimit.models.loading import LoadedModel
    from attnlimit.models.texts import Passages
    from attnlimit.planning.calibration import CalibrationSet
    from attnlimit.planning.comparison import Comparison
    from attnlimit.planning.target import Target
    from attnlimit.report.model_page import Decoding, PageSource


TARGETS_AND_FILES = ("kl", "perplexity", "cosine", "target", "quick", "out", "page", "json")
"""Options that a page's commands set themselves."""


def plan(
    context: Context,
    model: options.Model = "smollm2",
    text: options.Texts = None,
    tokens: options.PassageTokens = 512,
    parts: Annotated[int, options.whole("Passages of each text to plan on.", rare=True)] = 4,
    capture: Annotated[
        str | None,
        options.advanced("Capture folder with gradients, in place of model and text."),
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
        Path | None,
        Option(help="Page to write, with other samplers measured.", callback=options.html),
    ] = None,
    json: options.AsJson = False,
    target: Annotated[
        str | None, options.advanced("Another registered target, NAME:VALUE.")
    ] = None,
    decode: Annotated[
        int | None,
        options.whole("Last tokens of a passage that are sampled, as in generation.", rare=True),
    ] = None,
    per: Annotated[
        str, options.advanced("Unit with its own size: model, layer or head.")
    ] = "model",
    scheme: Annotated[
        str | None,
        options.advanced(
            "Sampler family: threshold, index, two-level, or a sampler such as top-k:64+192."
        ),
    ] = None,
    minimise: Annotated[
        str | None,
        Option(
            help="Choose keys read, bits and evictions together, for the least bytes_read, "
            "bytes_stored or milliseconds."
        ),
    ] = None,
    evict: Annotated[
        str | None, options.advanced("Eviction rule of the cache, such as 0.5.")
    ] = None,
    quantize: Annotated[
        str | None,
        Option(help="Precision of the cache, such as q4_0, q8_0/q4_0, int4, fp8 or 8/4 bits."),
    ] = None,
    probes: Annotated[
        int | None,
        options.whole("Backward passes for each passage.", 2, show_default="4", rare=True),
    ] = None,
    repeats: Annotated[int, options.whole("Runs of a measurement.", 2, rare=True)] = 3,
    seed: Annotated[int, options.whole("Seed of probes and draws.", 0, rare=True)] = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = None,
) -> None:
    """Plan which keys a model reads so that its output stays within a target.

    The plan is predicted from backward passes, then measured on a passage not planned on. A
    capture that keeps gradients (attnlimit capture --probes 4) is planned without its model.
    """
    if quick and page is not None:
        raise BadInput("A page shows what was measured: leave out --quick, or --page.")
    from attnlimit.models.captures import open_passages
    from attnlimit.models.eviction.rules import parse_rule
    from attnlimit.models.loading import load_once
    from attnlimit.models.texts import Passages
    from attnlimit.planning.allocation import UNITS, SamplerGrid
    from attnlimit.planning.calibration import CaptureCalibration, calibration_of
    from attnlimit.planning.comparison import compare
    from attnlimit.planning.joint import MINIMISE
    from attnlimit.planning.precision import Quantize
    from attnlimit.planning.probes import kept_probes
    from attnlimit.planning.target import default_target, given_target

    checks.one_of(per, UNITS, "--per")
    if minimise is not None:
        checks.one_of(minimise, MINIMISE, "--minimise")
    SamplerGrid.of(scheme or "threshold", 64)
    rule = None if evict is None else parse_rule(evict)
    precision = None if quantize is None else Quantize.parse(quantize)
    changes: dict[str, Any] = {"quantize": precision, "evict": rule, "minimise": minimise}
    changes |= {"per": per, "scheme": scheme, "decode": decode}
    named = [("kl", kl), ("perplexity", perplexity), ("cosine", cosine)]
    wanted = given_target(named, _registered_target(target))
    loaded, passages = None, None
    given = options.given(context, ("model",) if capture is None else (), TARGETS_AND_FILES)
    with options.progress_bar("passages", shown=not json) as progress:
        calibration: CalibrationSet
        if capture is not None:
            stored = open_passages(capture)
            wanted = wanted or usual_target(kept_probes(stored[0]).output)
            calibration = CaptureCalibration(stored, wanted)
            source = capture_source(capture, stored[0], given)
        else:
            loaded = load_once(model, device, dtype)
            passages = Passages.read(loaded, text or [options.ARTICLE], tokens=tokens, parts=parts)
            wanted = wanted or usual_target(default_target(loaded.model))
            calibration = calibration_of(loaded, passages.ids, wanted, probes=probes, seed=seed)
            source = text_source(loaded, passages, given)
        result = compare(
            None if quick else loaded,
            passages,
            calibration,
            wanted,
            options=changes,
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


def text_source(loaded: LoadedModel, passages: Passages, given: str) -> PageSource:
    """Return the origin of a plan of a model on texts, made with the options that were given."""
    from attnlimit.report.model_page import PageSource

    first, *others = dict.fromkeys(passage.text for passage in passages.planned)
    about = passages.planned[0]
    text = first, tuple(others), about.source, about.licence
    return PageSource(given, *text, loaded.licence, tuple(loaded.notes))


def capture_source(folder: str, capture: Capture, given: str) -> PageSource:
    """Return the origin of a plan of a capture, made with the options that were given."""
    from attnlimit.models.captures import passage_of
    from attnlimit.report.model_page import PageSource

    known, about = passage_of(capture, folder), capture.source
    licence, notes = str(about.get("licence", "unknown")), map(str, about.get("notes", ()))
    text = known.text, (), known.source, known.licence
    return PageSource(given, *text, licence, tuple(notes))


def show(
    result: Comparison,
    *,
    json: bool,
    quick: bool,
    plan: Path | None,
    page: Path | None,
    decoding: Decoding | None = None,
) -> None:
    """Print a plan and the paths of its files."""
    if json:
        run = result.evaluation
        value, error = (None, None) if run is None else run.distance(result.plan.target.measure)
        content = {**result.plan.to_dict(), "evaluated": value, "evaluated_stderr": error}
        if decoding is not None:
            rows = decoding.times.frame.to_dict("records")
            content |= {"decoding": decoding.written.to_dict() | {"by_context": rows}}
        options.print_json({**content, "unseen": result.unseen, "file": plan, "page": page})
        return
    if decoding is not None:
        options.say(decoding.headline(result.model), f"  {decoding.meaning()}", decoding.times)
    options.say(*(str(result.plan).splitlines() if quick else result.lines()))
    if page is not None:
        options.say(f"page  {page.resolve()}")
    if plan is not None:
        model = result.plan.model
        command = f"attnlimit evaluate --model {model} --plan {plan} --text YOUR_TEXT.txt"
        options.say(f"plan  {plan}; measure it on a text of your own: {command}")


def write_plan_page(
    result: Comparison, source: PageSource, path: Path, seed: int, decoding: Decoding | None = None
) -> Path:
    """Write the page of a plan."""
    from attnlimit.report.model_page import model_page
    from attnlimit.report.page import write_page
    from attnlimit.runs.folder import versions

    made = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"created": made, "version": attnlimit.__version__, "versions": versions()}
    text = model_page(record | {"config": {"seed": seed}}, result, source, path.parent, decoding)
    return write_page(path, text)
