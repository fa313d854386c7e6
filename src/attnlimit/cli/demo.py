"""`attnlimit demo`: a plan for a language model on an article, measured, to a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from attnlimit.cli.options import ARTICLE, AsJson, PassageTokens, Seed, html, progress_bar
from attnlimit.cli.plan import show, text_source, usual_target, write_plan_page

if TYPE_CHECKING:
    from attnlimit.models.loading import LoadedModel
    from attnlimit.models.texts import Passages
    from attnlimit.planning.comparison import Comparison

PARTS = 2
WRITTEN = 60


def demo(
    page: Annotated[Path, Option(help="Page to write.", callback=html)] = Path("report/index.html"),
    tokens: PassageTokens = 256,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Plan SmolLM2 on an article, measure it and other samplers, generate text, write the page.

    MiniLM, an encoder, stands in where SmolLM2's weights are not installed.
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
    calibration = calibration_of(loaded, passages.ids, target, seed=seed)
    how: dict[str, Any] = {"options": {}, "seed": seed, "curves": True}
    with progress_bar("plan and other samplers", shown=not json) as progress:
        result = compare(loaded, passages, calibration, target, **how, progress=progress)
        result = replace(result, generated=generated_texts(loaded, passages, result))
    plan = result.plan.write(page.parent / "plan.json")
    source = text_source(
        loaded, passages, f"--model {name} --text {ARTICLE} --tokens {tokens} --parts {PARTS}"
    )
    write_plan_page(result, source, page, seed)
    show(result, json=json, quick=False, plan=plan, page=page)


def generated_texts(loaded: LoadedModel, passages: Passages, result: Comparison) -> dict[str, str]:
    """Texts that a causal model writes after a prompt, with all keys and with the plan's."""
    import torch

    from attnlimit.models.sampled import sampled_attention

    tokenizer = loaded.tokenizer
    if not loaded.causal or tokenizer is None:
        return {}
    prompt = torch.tensor([passages.measured_on()[:200]])
    options: dict[str, Any] = {"max_new_tokens": WRITTEN, "do_sample": False, "eos_token_id": None}
    options["attention_mask"] = torch.ones_like(prompt)

    def written() -> str:
        ids = loaded.model.generate(prompt, **options)[0, prompt.shape[1] :]
        return str(tokenizer.decode(ids))

    dense = written()
    with sampled_attention(loaded, result.plan) as stats:
        sampled = written()
    read = f"with the plan, {stats.mean_keys:.0f} of {stats.mean_visible:.0f} keys"
    return {"all keys": dense, read: sampled}
