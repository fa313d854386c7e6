"""`attnlimit export`: a plan's budgets as files that other tools read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from attnlimit.budgets.exports import FORMATS, check_export, export_plan
from attnlimit.cli.options import AsJson
from attnlimit.cli.show import print_json, print_table, printable, say


def export(
    file: Annotated[Path, typer.Argument(help="What attnlimit plan --budget wrote.")],
    to: Annotated[str, typer.Option(help=f"{', '.join(FORMATS)}.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; FILE-FORMAT by default.")
    ] = None,
    kv_heads: Annotated[
        int | None, typer.Option(help="Key-value heads of a layer, if the plan does not say it.")
    ] = None,
    sinks: Annotated[int, typer.Option(help="First tokens that are always kept.")] = 4,
    recent: Annotated[int, typer.Option(help="Recent tokens that are always kept.")] = 64,
    page_size: Annotated[int, typer.Option(help="Tokens in a page of a paged cache.")] = 16,
    force: Annotated[bool, typer.Option(help="Write into a folder that is not empty.")] = False,
    json: AsJson = False,
) -> None:
    """Write a plan's budgets as another tool reads them, and say what that tool cannot keep.

    kvpress: budget curves of LUKVPress. duo: a folder of DuoAttention. scores: retrieval-head
    scores. layers: budgets of each layer in whole pages. hub: sparse-attention-hub's sampler.
    """
    made = export_plan(file, to, kv_heads=kv_heads, sinks=sinks, recent=recent, page_size=page_size)
    folder = made.write(out or file.with_name(f"{file.stem}-{to}"), force=force)
    check_export(folder, to)
    if json:
        print_json({"folder": folder, **made.about(), "table": made.table})
        return
    print_table(made.table, made.model)
    say(f"use   {made.use}", f"wrote {folder}: {', '.join(sorted(made.files))}")
    print(f"lost  {printable(made.lost)}", file=sys.stderr)
