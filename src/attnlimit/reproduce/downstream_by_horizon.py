"""Do texts with a larger horizon lose more when attention is thinned? Accuracy by tertile."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from attnlimit.reproduce.downstream import Downstream
from attnlimit.reproduce.experiment import Config
from attnlimit.reproduce.rows import where

TERTILES = ("low horizon", "middle", "high horizon")


class DownstreamByHorizon(Downstream):
    """Tertiles of the median horizon over the heads on each passage."""

    name = "downstream-by-horizon"
    title = "Retrieval with i.i.d. keys, by the horizon of the text"
    schemes = ("iid",)
    column = "tertile"
    note = "all layers thinned, tertiles of the median horizon over the heads"

    def parts(self, curves: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
        edges = np.quantile(curves.groupby("article")["horizon"].first(), [1 / 3, 2 / 3])
        marked = curves.assign(tertile=np.searchsorted(edges, curves["horizon"]))
        return ((name, where(marked, tertile=k)) for k, name in enumerate(TERTILES))

    def remarks(self, config: Config, curves: pd.DataFrame) -> list[str]:
        part = curves.groupby("article")[["horizon", "cosine"]].mean()
        rank = float(part.corr("spearman").to_numpy()[0, 1])
        return [
            "Rank correlation over articles between horizon and the cosine to the dense "
            f"embedding: {rank:+.2f} (positive: a larger horizon "
            "loses less)."
        ]


EXPERIMENT = DownstreamByHorizon()
