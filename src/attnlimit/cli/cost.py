"""`attnlimit cost`: how long and how much memory will planning or measuring a model take?"""

from __future__ import annotations

from typing import Annotated

from typer import Option

from attnlimit import checks
from attnlimit.cli.options import AsJson
from attnlimit.cli.show import print_json, print_table, say
from attnlimit.cost import NAMED, Estimate, Job, measure_rates, shape_of
from attnlimit.errors import BadInput
from attnlimit.models import load


def cost(
    model: Annotated[
        str | None, Option(help="A model to load: minilm, smollm2, a folder or a hub id.")
    ] = None,
    like: Annotated[str | None, Option(help=f"Sizes of a known model: {', '.join(NAMED)}.")] = None,
    context: Annotated[int, Option("--context", "--text-tokens", help="Tokens of a text.")] = 512,
    queries: Annotated[int, Option(help="Queries of each head that are asked.")] = 128,
    parts: Annotated[int, Option(help="Passages of text.")] = 4,
    replicates: Annotated[int, Option(help="Draws that measure takes.")] = 100,
    workers: Annotated[int, Option(help="Workers, of one core each.")] = 1,
    half: Annotated[bool, Option("--half", help="Weights and capture in 16 bits.")] = False,
    json: AsJson = False,
) -> None:
    """Predict the hours and memory of capture, plan --heads and measure, before they are run.

    Counts are exact; the seconds of each are timed on this machine, which takes some seconds. A
    plan for the model's output (plan --kl) is not counted: its backward passes take what training
    on a passage would.
    """
    if (model is None) == (like is None):
        raise BadInput("Give --model, a model to load, or --like, the sizes of a known one.")
    if like is not None and like not in NAMED:
        raise BadInput(f"--like must be one of {', '.join(NAMED)}; got {like!r}.")
    count = checks.count(workers, "--workers")
    shape = shape_of(load(str(model))) if like is None else NAMED[like]
    job = Job(shape, context, queries, parts, replicates, number=2 if half else 4)
    found = Estimate(job, measure_rates(job), count)
    if json:
        covered = {"share_covered": job.share_covered, "share_error": job.share_error}
        jobs = {"jobs": found.totals(), **covered}
        print_json({"stages": found.to_frame(), **jobs, "rates": found.rates})
        return
    print_table(found.to_frame(), f"{like or model}, {parts} x {context} tokens")
    print_table(found.totals())
    say(
        f"A budget covers {100 * job.share_covered:.1f} +- {100 * job.share_error:.2g} % of the "
        f"queries, expected from {job.asked} of each head.",
        "plan is that of single heads (--heads); a plan for the output (--kl) takes backward "
        "passes, as training on a passage would.",
    )
