"""`attnlimit tokens`: a text with each token shaded by its influence on a head or a layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from attnlimit.cli import options
from attnlimit.errors import BadInput

if TYPE_CHECKING:
    from attnlimit.models.captures import Capture


def tokens(
    text: Annotated[str, Argument(help=options.TEXT)] = options.ARTICLE,
    model: options.Model = "minilm",
    layer: Annotated[
        int | None, Option(help="Layer, -1 for the model's last.", show_default="last captured")
    ] = None,
    head: Annotated[int | None, Option(help="Head.", show_default="the whole layer")] = None,
    folder: Annotated[
        str | None, Option("--capture", help="Capture folder, in place of model and text.")
    ] = None,
    length: Annotated[int, options.whole("Maximum number of tokens of the text.", 2)] = 512,
    document: Annotated[int, Option(help="Number of the document in a folder or corpus.")] = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    out: Annotated[Path, Option(help="HTML file to write.", callback=options.html)] = Path(
        "tokens.html"
    ),
    json: options.AsJson = False,
) -> None:
    """Shade a text by the influence of each token on a head or a layer."""
    import pandas as pd

    from attnlimit.models.captures import capture, open_capture
    from attnlimit.models.loading import load
    from attnlimit.models.texts import read_corpus
    from attnlimit.report.page import token_page, write_page

    if folder is not None:
        captured = open_capture(folder)
        (title, name), source, notes = _origin(captured, folder)
    else:
        corpus = read_corpus(text)
        chosen, loaded = corpus[document], load(model, device=device, dtype=dtype)
        most = min(length, loaded.positions or length)
        captured = capture(loaded, loaded.ids(chosen.text, most))
        source = f"{corpus.source}, {corpus.licence}; model {loaded.source}, {loaded.licence}"
        title, name, notes = chosen.title, loaded.name, loaded.notes
    number = captured.check_layer(max(captured.layers) if layer is None else layer)
    influence = captured.influence(number, head)
    where = f"layer {number}" + (f", head {captured.check_head(head)}" if head is not None else "")
    page = token_page(
        captured.tokens,
        influence,
        title=f"{title}: influence of each token in {where} of {name}",
        source=source,
        notes=notes,
    )
    try:
        write_page(out, page)
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error.strerror}; give another --out.") from None
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
        options.print_json({"page": out, "where": where, "tokens": len(captured), "top": top})
        return
    options.print_table(top, f"Most influential of {len(captured)} tokens, {where}")
    options.say(f"page  {out}")


def _origin(captured: Capture, folder: str) -> tuple[tuple[str, str], str, tuple[str, ...]]:
    """Title and model, source, and notes of a stored capture."""
    from attnlimit.models.captures import passage_of

    known = captured.source
    text = passage_of(captured, folder)
    where = f"{text.source}, {text.licence}; model {known.get('source', folder)}"
    names = text.text, str(known.get("model", "own tensors"))
    return names, f"{where}, {known.get('licence', 'unknown')}", tuple(known.get("notes", ()))
