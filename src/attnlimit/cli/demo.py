"""`attnlimit demo`: a plan for a language model on an article, measured, to a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from attnlimit.cli.options import ARTICLE, AsJson, PassageTokens, Seed, html, progress_bar
from attnlimit.cli.plan import show, text_source, usual_target, write_plan_page

if TYPE_CHECKING:
    from attnlimit.models.loading import LoadedModel
    from attnlimit.planning.target import Target
    from attnlimit.report.model_page import Decoding

PARTS = 2
PROMPT = 4096
"""Tokens of the article that the plan for decoding is made on, and that are continued."""
PLANNED, WRITTEN = 64, 60
LENGTHS = (512, 1024, 2048, 4096, 8184)
"""Tokens of context at which a decoded token is timed; the model has 8192 positions."""


def demo(
    page: Annotated[Path, Option(help="Page to write.", callback=html)] = Path("report/index.html"),
    tokens: PassageTokens = 256,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Plan SmolLM2 on a long article, write text with few keys and with all, write the page.

    The page also has other samplers, on passages of the article. MiniLM, an encoder, stands in
    where SmolLM2's weights are not installed; it writes no text.
    """
    from attnlimit.models.loading import BUNDLED, load_once
    from attnlimit.models.texts import Passages
    from attnlimit.planning.calibration import calibration_of
    from attnlimit.planning.comparison import compare
    from attnlimit.planning.target import default_target

    name = "smollm2" if BUNDLED["smollm2"].path is not None else "minilm"
    loaded = load_once(name)
    passages = Passages.read(loaded, [ARTICLE], tokens=tokens, parts=PARTS)
    target = usual_target(default_target(loaded.model))
    decoding = None
    with progress_bar("a long article", shown=not json) as progress:
        if loaded.causal:
            decoding = decoded(loaded, target, seed, progress)
    calibration = calibration_of(loaded, passages.ids, target, seed=seed)
    how: dict[str, Any] = {"options": {}, "seed": seed, "curves": True}
    with progress_bar("plan and other samplers", shown=not json) as progress:
        result = compare(loaded, passages, calibration, target, **how, progress=progress)
    plan = result.plan.write(page.parent / "plan.json")
    source = text_source(
        loaded, passages, f"--model {name} --text {ARTICLE} --tokens {tokens} --parts {PARTS}"
    )
    if decoding is not None:
        decoding.plan.write(page.parent / "decoding.json")
    write_plan_page(result, source, page, seed, decoding)
    show(result, json=json, quick=False, plan=plan, page=page, decoding=decoding)


def decoded(
    loaded: LoadedModel, target: Target, seed: int, progress: Callable[[int, int], None]
) -> Decoding:
    """Plan decoding on an article, continue it with few keys and with all, and time both."""
    from attnlimit.decoding.cost import cost_model
    from attnlimit.decoding.generation import generate, time_by_context
    from attnlimit.models.texts import read_corpus
    from attnlimit.planning.planner import plan
    from attnlimit.report.model_page import Decoding

    ids = loaded.ids(read_corpus(ARTICLE).joined())
    progress(0, 3)
    how: dict[str, Any] = {"decode": PLANNED, "machine": cost_model(), "seed": seed}
    made = plan(loaded, ids[:PROMPT], target=target, **how)
    progress(1, 3)
    written = generate(loaded, ids[:PROMPT], made, tokens=WRITTEN, compare=True, seed=seed)
    progress(2, 3)
    times = time_by_context(loaded, ids, made, LENGTHS, seed=seed)
    progress(3, 3)
    return Decoding(made, written, times)
