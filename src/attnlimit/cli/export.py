"""`attnlimit export`: a plan in the format of another tool."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from attnlimit.cli.options import AsJson, print_json, print_table, printable, say


def export(
    file: Annotated[Path, typer.Argument(help="Plan file written by attnlimit plan.")],
    to: Annotated[
        str,
        typer.Option(
            help="Format: kvpress, duo, scores, layers, hub, llama.cpp, transformers or modelopt."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write.", show_default="FILE-FORMAT")
    ] = None,
    sinks: Annotated[int, typer.Option(help="Number of first tokens that are always kept.")] = 4,
    recent: Annotated[int, typer.Option(help="Number of last tokens that are always kept.")] = 64,
    page_size: Annotated[int, typer.Option(help="Tokens in a page of a paged cache.")] = 16,
    force: Annotated[
        bool, typer.Option("--force", help="Write to a folder that is not empty.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Write a plan in the format of another tool, and print what that tool cannot keep.

    kvpress: budget curves of LUKVPress. duo: a folder of DuoAttention. scores: retrieval-head
    scores. layers: budgets of each layer in whole pages. hub: sparse-attention-hub's sampler.
    llama.cpp: cache types. transformers: a quantised cache. modelopt: sparse_attention_config.
    """
    from attnlimit.planning.export import export_plan

    made = export_plan(file, to, sinks=sinks, recent=recent, page_size=page_size)
    folder = made.write(out or file.with_name(f"{file.stem}-{to}"), force=force)
    if json:
        print_json({"folder": folder, **made.about(), "table": made.table})
        return
    print_table(made.table, made.model)
    say(f"use   {made.use}", f"wrote {folder}: {', '.join(sorted(made.files))}")
    print(f"lost  {printable(made.lost)}", file=sys.stderr)
