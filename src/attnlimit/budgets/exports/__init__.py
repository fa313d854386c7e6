"""What do other tools read of a plan? One file a format: what is written, and how it is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnlimit import checks
from attnlimit.budgets.exports import duo, hub, kvpress, layers, scores
from attnlimit.budgets.exports.folder import Choices, Export
from attnlimit.budgets.exports.needs import needs_of, read_needs
from attnlimit.budgets.model import Plan
from attnlimit.models.output.planned import OutputPlan

__all__ = ["FORMATS", "Export", "check_export", "export_plan"]

FORMATS = {
    "kvpress": kvpress.FORMAT,
    "duo": duo.FORMAT,
    "scores": scores.FORMAT,
    "layers": layers.FORMAT,
    "hub": hub.FORMAT,
}


def export_plan(
    plan: OutputPlan | Plan | str | Path,
    to: str,
    *,
    kv_heads: int | None = None,
    sinks: int = 4,
    recent: int = 64,
    page_size: int = 16,
) -> Export:
    """Return what another tool reads of a plan; `write` puts it in a folder.

    Parameters
    ----------
    plan : OutputPlan, Plan, or the path of either's file
    to : "kvpress", "duo", "scores", "layers" or "hub"
    kv_heads : int, optional
        Key-value heads in a layer, where the plan does not say it: plans for a model's output.
    sinks, recent : int
        First and most recent tokens that are always kept, and counted.
    page_size : int
        Tokens in a page of a paged cache.
    """
    form = FORMATS[checks.one_of(to, tuple(FORMATS), "The format")]
    known = (str, Path)
    needs = read_needs(plan, kv_heads) if isinstance(plan, known) else needs_of(plan, kv_heads)
    return form.make(needs, Choices(sinks, recent, page_size))


def check_export(folder: str | Path, to: str) -> Any:
    """Read an export as its tool would; a BadInput says what that tool could not read."""
    return FORMATS[checks.one_of(to, tuple(FORMATS), "The format")].check(Path(folder))
