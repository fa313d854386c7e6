"""`attnlimit tokens`: a text with each token shaded by its influence on a head or a layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from attnlimit import checks
from attnlimit.cli.options import AsJson
from attnlimit.cli.show import console, print_json, print_table
from attnlimit.errors import BadInput
from attnlimit.files import write_atomically
from attnlimit.models import capture, load, read_corpus
from attnlimit.models.heads.selection import RULES, selection_error
from attnlimit.report.token_page import token_page


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command("tokens")(tokens)


def tokens(
    text: Annotated[
        str, typer.Argument(help="A file, a folder, -, wikipedia or wikipedia:TITLE.")
    ] = "wikipedia:Anarchism",
    model: Annotated[str, typer.Option(help="minilm, smollm2, a folder or a hub id.")] = "minilm",
    layer: Annotated[int, typer.Option(help="Layer; negative ones count from the last.")] = -1,
    head: Annotated[int | None, typer.Option(help="Head; the whole layer by default.")] = None,
    length: Annotated[int, typer.Option(help="Tokens of the text to read, at most.")] = 512,
    document: Annotated[int, typer.Option(help="Which document of a folder or corpus.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the random rules.")] = 0,
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("tokens.html"),
    json: AsJson = False,
) -> None:
    """Shade a text by the influence of each token, and test what keeping tokens is worth."""
    most = checks.count(length, "--length", smallest=2)
    corpus = read_corpus(text)
    chosen = corpus[document]
    loaded = load(model)
    if loaded.tokenizer is None:
        raise BadInput(f"{model} came without a tokenizer, so it cannot read text.")
    limit = min(most, loaded.positions or most)
    ids = loaded.tokenizer(chosen.text, verbose=False)["input_ids"]
    if len(ids) > limit and not loaded.causal:
        ids = [*ids[: limit - 1], ids[-1]]
    captured = capture(loaded, ids[:limit])
    number = captured.check_layer(layer)
    influence = captured.influence(number, head)
    sizes = [n for n in (16, 64, 256) if n < len(captured)] or [max(1, len(captured) // 2)]
    kept = selection_error(captured, number, sizes, head=head, seed=seed)
    where = f"layer {number}" + (f", head {captured.check_head(head)}" if head is not None else "")
    page = token_page(
        captured.tokens,
        influence,
        kept,
        title=f"{chosen.title}: influence of each token in {where} of {loaded.name}",
        source=f"{corpus.source}, {corpus.licence}; model {loaded.source}, {loaded.licence}",
        notes=loaded.notes,
    )
    try:
        write_atomically(out, page.encode())
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
    wide = kept.pivot(index="rule", columns="n", values="output_error")
    wide = wide.loc[list(RULES)].reset_index()
    wide.columns = pd.Index(["kept by", *(f"n = {n}" for n in sizes)])
    print_table(wide, "Relative error of the outputs when all queries see only n tokens")
    console().print(f"page  {out}", markup=False)
