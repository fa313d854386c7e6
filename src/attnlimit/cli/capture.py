"""`attnlimit capture`: queries, keys and values of a model's heads, as files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from attnlimit import checks
from attnlimit.cli import options
from attnlimit.errors import BadInput

OUTPUTS = ("kl", "cosine")


def capture(
    out: Annotated[Path, Option(help="Folder to write.")],
    model: options.Model = "minilm",
    text: options.Texts = None,
    tokens: options.PassageTokens = 512,
    parts: Annotated[int, options.whole("Maximum number of passages of each text.")] = 4,
    layer: Annotated[list[int] | None, Option(help="Layer to capture; may be repeated.")] = None,
    probes: Annotated[
        int | None, options.whole("Backward passes whose gradients are stored.", 2)
    ] = None,
    output: Annotated[str | None, options.advanced("Output of the probes: kl or cosine.")] = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    json: options.AsJson = False,
) -> None:
    """Write the queries, keys and values of every head to a folder.

    Commands with --capture read the folder without the model and without transformers. An
    interrupted capture continues with the passages that are missing. With --probes the folder also
    holds the gradients from which plan --kl and plan --cosine predict the output's error.
    """
    if probes is not None and layer is not None:
        raise BadInput("Probes need every layer: leave out --layer, or --probes.")
    if output is not None and probes is None:
        raise BadInput(f"--output {output} needs --probes; add --probes 4.")
    if output is not None:
        checks.one_of(output, OUTPUTS, "--output")
    from attnlimit.models.captures import Capture, part_folder
    from attnlimit.models.captures import capture as capture_model
    from attnlimit.models.loading import load
    from attnlimit.models.texts import read_passages
    from attnlimit.planning.probes import capture_sensitivities

    folder = out.expanduser()
    loaded = load(model, device=device, dtype=dtype)
    passages = read_passages(loaded, text or [options.ARTICLE], tokens, parts)
    count = len(passages)
    captured: Capture | None = None
    with options.progress_bar("passages", shown=not json) as progress:
        for number, passage in enumerate(passages):
            progress(number, count)
            place, ids = part_folder(folder, number), list(passage.ids)
            stated = {"passage": asdict(passage), "parts": count if number == 0 else 1}
            if probes is None:
                captured = capture_model(loaded, ids, layers=layer, folder=place, about=stated)
            else:
                how: dict[str, Any] = {"probes": probes, "output": output, "about": stated}
                captured = capture_sensitivities(loaded, ids, place, seed=seed + number, **how)
        progress(count, count)
    assert captured is not None
    folders = [part_folder(folder, number) for number in range(count)]
    size = sum(file.stat().st_size for place in folders for file in place.iterdir())
    if json:
        about = {"model": model, "weights": loaded.weights, "tokens": len(captured)}
        options.print_json({"folder": out, "passages": count, "bytes": size, **about})
        return
    stored = None if captured.probes is None else captured.probes.output
    target = {"kl": " --kl 0.01", "cosine": " --cosine 0.999"}.get(str(stored), "")
    options.say(
        f"{model}: {_plural(len(captured.layers), 'layer')} of {captured.heads} heads on "
        f"{_plural(count, 'passage')} of {len(captured)} tokens, {size / 1e6:.1f} MB",
        f"capture  {out}; plan from it: attnlimit plan --capture {out}{target}",
    )


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
