"""`attnlimit generate`: continue a text with fast decoding."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from attnlimit.cli import options
from attnlimit.errors import BadInput

PLANNED = 1024
DECODED = 128


def generate(
    model: options.Model = "smollm2",
    prompt: Annotated[
        list[str] | None, Option(help=f"{options.TEXT[:-1]}; several are one batch.")
    ] = None,
    tokens: Annotated[
        int, options.whole("Tokens of a prompt that are read; the last ones of a longer text.", 2)
    ] = 4096,
    new: Annotated[int, options.whole("Tokens to write after each prompt.", 2)] = 100,
    plan: Annotated[Path | None, Option(help="Plan file written by attnlimit plan.")] = None,
    kl: Annotated[
        float | None,
        Option(help="Mean KL divergence of the tokens to keep, in nats; 0.01 without a plan."),
    ] = None,
    compare: Annotated[
        bool, Option("--compare", help="Write the text with all keys too, and measure every token.")
    ] = False,
    temperature: Annotated[
        float, Option(help="Temperature of sampling; 0 for the likeliest token.")
    ] = 0.0,
    seed: options.Seed = 0,
    dtype: options.Dtype = None,
    threshold: Annotated[float | None, options.advanced("Threshold c, in place of a plan.")] = None,
    json: options.AsJson = False,
) -> None:
    """Continue a text while every token reads few keys of the cache.

    Without a plan, one is made on the end of the first prompt. With --kl the target is kept on the
    text itself: some tokens are read with all keys too, and thresholds follow what they show.
    """
    if plan is not None and threshold is not None:
        raise BadInput("Give --plan or --threshold, not both.")
    if kl is not None and not kl > 0:
        raise BadInput(f"--kl must be positive, got {kl:g}; 0.01 is usual.")
    if threshold is not None and not threshold > 0:
        raise BadInput(f"--threshold must be positive, got {threshold:g}; 64 is usual.")
    if temperature < 0:
        raise BadInput(
            f"--temperature must be 0 or more, got {temperature:g}; 0 takes the likeliest token."
        )
    from attnlimit.models.loading import load_once
    from attnlimit.models.texts import read_corpus
    from attnlimit.planning.plan import Plan
    from attnlimit.samplers import Threshold

    rule: Any = None if plan is None else Plan.read(plan)
    if threshold is not None:
        rule = Threshold(threshold)
    texts = [read_corpus(source).joined() for source in prompt or ["wikipedia:Anarchism"]]
    loaded = load_once(model, "cpu", dtype)
    if loaded.tokenizer is None or not loaded.causal:
        raise BadInput(f"{model} does not write text; give a causal model, such as smollm2.")
    ids = [loaded.tokenizer(text).input_ids[-tokens:] for text in texts]
    target = kl if kl is not None or rule is not None else 0.01
    from attnlimit.decoding.cost import cost_model
    from attnlimit.decoding.generation import generate as write
    from attnlimit.planning.planner import plan as make_plan

    if rule is None:
        with options.progress_bar("plan on the prompt", shown=not json) as progress:
            progress(0, 1, "this takes some minutes; give --plan to skip it")
            rule = make_plan(
                loaded,
                ids[0][-PLANNED:],
                kl=target,
                decode=min(DECODED, len(ids[0]) // 2),
                machine=cost_model(),
                seed=seed,
            )
        if not json:
            options.say(rule, "")

    def stream(piece: str) -> None:
        sys.stdout.write(options.printable(piece))
        sys.stdout.flush()

    result = write(
        loaded,
        ids,
        rule,
        tokens=new,
        kl=None if compare else kl,
        compare=compare,
        temperature=temperature,
        seed=seed,
        on_text=None if json else stream,
    )
    if json:
        made = {"model": model, "prompts": prompt, "seed": seed}
        options.print_json(
            made | result.to_dict() | {"plan": getattr(rule, "to_dict", lambda: None)()}
        )
        return
    if len(ids) == 1:
        print()
    else:
        for number, text in enumerate(result.texts, start=1):
            options.say(f"--- {number}", text)
    for number, text in enumerate(result.dense_texts or (), start=1):
        options.say(f"--- {number}, with all keys", text)
    options.say("", result)
