"""Files of exports: what one holds, and the shares of heads that it is made from."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.files import write_atomically
from attnlimit.planning.plan import Plan
from attnlimit.result import Result

ABOUT = "export.json"
SCHEMA = "attnlimit.export/1"
DROPPED = (
    "The plan chooses keys anew for every query; a cache that drops keys keeps as many, chosen "
    "once and by the other tool, so the plan's prediction does not hold for it."
)
"""What is lost where keys are dropped for good."""


@dataclass(frozen=True)
class ExportOptions:
    """First and recent tokens that the tool always keeps, and the size of its pages."""

    sinks: int = 4
    recent: int = 64
    page_size: int = 16

    def __post_init__(self) -> None:
        checks.count(self.sinks, "sinks", smallest=0)
        checks.count(self.recent, "recent", smallest=0)
        checks.count(self.page_size, "page_size")


@dataclass(frozen=True, eq=False)
class HeadShares:
    """Shares of keys that the heads of a plan keep, and its key-value heads.

    Query heads that share keys keep the union of what each keeps, which a plan has counted.
    """

    plan: Plan

    @property
    def context(self) -> int:
        """Tokens of the longest text of the plan."""
        return max(self.plan.tokens)

    @property
    def kept(self) -> Array:
        """Share of the keys that a query sees, (L, H)."""
        kept = np.clip(self.plan.keys / self.plan.mean_visible, 0.0, 1.0)
        kept[[[sampler is None for sampler in row] for row in self.plan.heads]] = 1.0
        return np.asarray(kept)

    def key_value_shares(self) -> Array:
        """Share of the cache that each key-value head keeps, (L, G)."""
        if self.plan.target.measure != "kl":
            raise BadInput(
                "The plan's model reads all its tokens at once and has no key-value cache to make "
                "smaller; scores and hub can be exported."
            )
        if self.plan.kv_keys is None:
            raise BadInput(
                "The plan has not counted the keys that heads of a group read together; make it "
                "again with attnlimit plan."
            )
        return np.asarray(np.clip(self.plan.kv_keys / self.plan.mean_visible, 0.0, 1.0))


@dataclass(frozen=True, eq=False)
class Export(Result):
    """Files for another tool, not yet written."""

    to: str
    model: str
    files: dict[str, bytes]
    use: str  # how the other tool takes them
    lost: str  # one sentence
    numbers: dict[str, Any]  # that the other tool is to be given beside the files
    table: pd.DataFrame  # what is exported, layer by layer

    def to_frame(self) -> pd.DataFrame:
        """One row for each layer, or for each setting."""
        return self.table

    def headline(self) -> str:
        """Use, and what is lost."""
        return f"{self.to}: {self.use}\nlost: {self.lost}"

    def about(self) -> dict[str, Any]:
        """Return the content of `export.json`."""
        return {
            "schema": SCHEMA,
            "to": self.to,
            "model": self.model,
            "files": sorted(self.files),
            **self.numbers,
            "use": self.use,
            "lost": self.lost,
        }

    def write(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the files; a folder that is not empty is refused, unless with `force`."""
        target = Path(folder)
        if target.exists() and not target.is_dir():
            raise BadInput(f"{target} is a file; give a folder.")
        if target.is_dir() and any(target.iterdir()) and not force:
            raise BadInput(f"{target} is not empty; give another, or --force to write there.")
        for name, content in self.files.items():
            write_atomically(target / name, content)
        write_atomically(target / ABOUT, as_json(self.about()))
        return target


Maker: TypeAlias = Callable[[HeadShares, ExportOptions], Export]
"""Makes the files of a tool."""


def by_layer(shares: Array, mean: str) -> pd.DataFrame:
    """Return a table of the shares of each layer's heads."""
    columns = {mean: shares.mean(1), "least": shares.min(1), "most": shares.max(1)}
    return pd.DataFrame({"layer": np.arange(len(shares)), **columns})


def as_json(content: Any) -> bytes:
    """Return the bytes of a JSON file."""
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()
