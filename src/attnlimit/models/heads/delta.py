"""How fast does each head's mean output converge? Every n of every head from one pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.models.capture.captured import Captured, CapturedLayer
from attnlimit.models.heads.influence import layer_influence
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result, table

MAX_PARTICIPATION = 0.15
MAX_SATURATION = 0.4


@dataclass(frozen=True, eq=False)
class DeltaCurves(Result, Pictured):
    """Delta method for the mean output of every head, with where it can be trusted.

    `reliable` holds where the next order of the expansion is small: the weights of a query over n
    tokens are spread (`participation` / n < 0.15) and the tokens that matter do not saturate
    (`saturation` / n < 0.4). Both are sums over the same pass. The thresholds were set on MiniLM;
    on articles they were not set on, the root mean square error was right within 10 % there
    (docs/theory/real-heads.md).
    """

    n: NDArray[np.int64]
    mse: Array  # (L, H, len(n))  tr Cov psi / n
    reliable: NDArray[np.bool_]  # (L, H, len(n))
    participation: Array  # (L, H)  N mean_i sum_j P_ij^2
    saturation: Array  # (L, H)
    layers: tuple[int, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row for each head and n."""
        layer, head = np.asarray(self.layers)[:, None, None], np.arange(self.mse.shape[1])
        root = np.sqrt(self.mse)
        return table(layer=layer, head=head[:, None], n=self.n, root=root, reliable=self.reliable)

    def panel(self) -> Panel:
        """Median over the heads of the predicted error against n, and the middle half of them."""
        root = np.sqrt(self.mse).reshape(-1, len(self.n))
        low, middle, high = np.quantile(root, [0.25, 0.5, 0.75], axis=0)
        series = [
            Series(self.n, middle, "line", "median head", "heads"),
            Series(self.n, middle, "band", "middle half", "heads", None, low, high),
        ]
        return Panel("error of the mean output", "number of tokens n", "root error", series)

    def __str__(self) -> str:
        share = self.reliable.mean(axis=(0, 1))
        lines = ["delta method for the mean output: median over heads, and share reliable"]
        for k, count in enumerate(self.n):
            root = np.median(np.sqrt(self.mse[..., k]))
            lines.append(f"  n = {count:<8d} {root:.4g}   {share[k]:.0%}")
        return "\n".join(lines)


def delta_curves(capture: Captured, n: ArrayLike, *, replacement: bool = True) -> DeltaCurves:
    """E|m_n - m|^2 of every head at every n, to first order, from one pass over the attention.

    Without replacement the first-order error is smaller by (N - n) / (N - 1).
    """
    counts = np.atleast_1d(checks.token_counts(n, smallest=1))
    parts = [head_expansion(layer) for layer in capture.layers.values()]
    variance, participation, saturation = (
        torch.stack(tensors).numpy() for tensors in zip(*parts, strict=True)
    )
    mse = first_order(variance, counts, len(capture), replacement)
    reliable = is_reliable(participation, saturation, counts)
    return DeltaCurves(counts, mse, reliable, participation, saturation, tuple(capture.layers))


def first_order(variance: Array, n: NDArray[np.int64], size: int, replacement: bool) -> Array:
    """Error (..., len(n)) of n of `size` tokens, from the variance (...) of one."""
    thinned = 1.0 if replacement else np.maximum(size - n, 0) / max(size - 1, 1)
    return variance[..., None] / n * thinned


def is_reliable(participation: Array, saturation: Array, n: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where the next order of the expansion is small, (..., len(n))."""
    spread = participation[..., None] / n < MAX_PARTICIPATION
    return np.asarray(spread & (saturation[..., None] / n < MAX_SATURATION))


def head_expansion(
    layer: CapturedLayer, heads: list[int] | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Variance of psi, mean participation times N, and the relative second-order term, by head.

    A token j that is drawn answers a query i with weight a / (a + n - 1), a = N P_ij, not a / n:
    to next order its influence shrinks by sum_i P_ij (N P_ij / n) (V_j - O_i), and outputs are
    biased by -(1/n) sum_j N P_ij^2 (V_j - O_i). `saturation` is n times their share of the
    variance.
    """
    found = layer_influence(layer, heads, second=True)
    variance = found.variance
    size = found.psi.shape[1]
    shrink = 2 * (found.psi.double() * found.saturation.double()).sum((-1, -2)) / size
    drift = found.bias.double().mean(1).square().sum(-1)
    participation = size * found.participation.double().mean(-1)
    return variance, participation, (shrink + drift) / variance.clamp_min(1e-300)
