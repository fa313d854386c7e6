"""`attnlimit tokens`: a text with each token shaded by its influence on a head or a layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from attnlimit import checks
from attnlimit.cli.model_options import DEVICE, DTYPE
from attnlimit.cli.options import AsJson, html
from attnlimit.cli.show import print_json, print_table, say
from attnlimit.errors import BadInput
from attnlimit.models import Capture, capture, load, open_capture, read_corpus
from attnlimit.models.heads.selection import selection_error
from attnlimit.report.page import write_page
from attnlimit.report.token_page import by_rule, token_page
from attnlimit.survey.stored import told


def tokens(
    text: Annotated[
        str, typer.Argument(help="A file, a folder, -, wikipedia:TITLE or sotu:TITLE.")
    ] = "wikipedia:Anarchism",
    model: Annotated[str, typer.Option(help="minilm, smollm2, a folder or a hub id.")] = "minilm",
    layer: Annotated[
        int | None, typer.Option(help="Layer, -1 for the model's last; the last that is there.")
    ] = None,
    head: Annotated[int | None, typer.Option(help="Head; the whole layer by default.")] = None,
    folder: Annotated[
        str | None,
        typer.Option("--capture", help="A capture's folder, in place of model and text."),
    ] = None,
    length: Annotated[int, typer.Option(help="Tokens of the text to read, at most.")] = 512,
    document: Annotated[int, typer.Option(help="Which document of a folder or corpus.")] = 0,
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
    dtype: Annotated[str | None, typer.Option(help=DTYPE)] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random rules.")] = 0,
    out: Annotated[Path, typer.Option(help="HTML file to write.", callback=html)] = Path(
        "tokens.html"
    ),
    json: AsJson = False,
) -> None:
    """Shade a text by the influence of each token, and test what keeping tokens is worth."""
    if folder is not None:
        captured = open_capture(folder)
        named, source, notes = _told(captured, folder)
    else:
        most = checks.count(length, "--length", smallest=2)
        corpus = read_corpus(text)
        chosen, loaded = corpus[document], load(model, device=device, dtype=dtype)
        captured = capture(loaded, loaded.ids(chosen.text, min(most, loaded.positions or most)))
        source = f"{corpus.source}, {corpus.licence}; model {loaded.source}, {loaded.licence}"
        named, notes = (chosen.title, loaded.name), loaded.notes
    number = captured.check_layer(max(captured.layers) if layer is None else layer)
    influence = captured.influence(number, head)
    sizes = [n for n in (16, 64, 256) if n < len(captured)] or [max(1, len(captured) // 2)]
    kept = selection_error(captured, number, sizes, head=head, seed=seed)
    where = f"layer {number}" + (f", head {captured.check_head(head)}" if head is not None else "")
    page = token_page(
        captured.tokens,
        influence,
        kept,
        title=f"{named[0]}: influence of each token in {where} of {named[1]}",
        source=source,
        notes=notes,
    )
    try:
        write_page(out, page)
    except OSError as error:
        raise BadInput(f"Cannot write {out}: {error.strerror}.") from None
    order = influence.argsort()[::-1][:10]
    top = pd.DataFrame(
        {
            "token": [captured.tokens[i] for i in order],
            "position": captured.positions.numpy()[order],
            "influence": influence[order],
            "share": influence[order] / influence.sum(),
        }
    )
    if json:
        print_json({"page": out, "where": where, "tokens": len(captured), "top": top, "kept": kept})
        return
    print_table(top, f"Most influential of {len(captured)} tokens, {where}")
    title = "Relative error of the outputs when all queries see only n tokens"
    print_table(by_rule(kept).reset_index(names="kept by"), title)
    say(f"page  {out}")


def _told(captured: Capture, folder: str) -> tuple[tuple[str, str], str, tuple[str, ...]]:
    """Title, source and notes of a capture that is a folder."""
    known = captured.source
    text = told(captured, str(folder))
    where = f"{text['source']}, {text['licence']}; model {known.get('source', folder)}"
    title = str(text["text"]), str(known.get("model", "own tensors"))
    return title, f"{where}, {known.get('licence', 'unknown')}", tuple(known.get("notes", ()))
