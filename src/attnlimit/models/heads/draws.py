"""What does a captured head give over sampled tokens, drawn? Errors of many replicates at once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnlimit.checks import Array
from attnlimit.models.capture.captured import CapturedHead
from attnlimit.montecarlo.sampled import drawn_outputs, generator_of
from attnlimit.samplers import Sampler

BLOCK_SCORES = 1 << 22
STATISTICS = ("pointwise", "mean", "covariance", "mean_norm", "covariance_norm")


def replicate_errors(
    head: CapturedHead,
    statistics: list[str],
    n: int,
    replicates: int,
    rng: np.random.Generator,
    *,
    replacement: bool = True,
    queries: Tensor | None = None,
) -> dict[str, Array]:
    """Errors of `replicates` draws of n tokens, for each statistic.

    In "mean" and "covariance" the n tokens drawn are queries and keys. In "pointwise" every token
    (or those in `queries`) asks n keys drawn among those it sees, and the error is averaged.
    """
    found: dict[str, list[Tensor]] = {name: [] for name in statistics}
    truth = head.output().double()
    target_mean = truth.mean(0)
    centred = truth - target_mean
    target_cov = centred.T @ centred / len(truth)
    block = max(1, min(replicates, BLOCK_SCORES // (n * max(n, 64))))
    moments = [name for name in statistics if name != "pointwise"]
    for start in range(0, replicates if moments else 0, block):
        picks = draw(len(head), n, min(block, replicates - start), rng, replacement)
        outputs = _among(head, picks).double()
        mean = outputs.mean(1)
        miss = (mean - target_mean).square().sum(-1)
        if "mean" in found:
            found["mean"].append(miss)
        if "mean_norm" in found:
            found["mean_norm"].append(miss.sqrt())
        if "covariance" in found or "covariance_norm" in found:
            around = outputs - mean[:, None]
            cov = around.transpose(1, 2) @ around / n
            gap = (cov - target_cov).square().sum((-1, -2))
            if "covariance" in found:
                found["covariance"].append(gap)
            if "covariance_norm" in found:
                found["covariance_norm"].append(gap.sqrt())
    if "pointwise" in found:
        rows = torch.arange(len(head)) if queries is None else queries
        found["pointwise"] = _pointwise(head, truth, rows, n, replicates, rng, replacement)
    return {name: torch.cat(parts).numpy() for name, parts in found.items()}


def draw(size: int, n: int, count: int, rng: np.random.Generator, replacement: bool) -> Tensor:
    """Draw `count` times n of `size` tokens, (count, n)."""
    if replacement:
        return torch.from_numpy(rng.integers(0, size, size=(count, n)))
    ranks = rng.random((count, size))
    return torch.from_numpy(np.argpartition(ranks, min(n, size) - 1, axis=1)[:, :n].copy())


def _among(head: CapturedHead, picks: Tensor) -> Tensor:
    """Outputs (B, n, d_v) of the tokens `picks` (B, n) over themselves."""
    plain = head.mask.full and head.softcap is None and head.bias is None
    q, k, v = (tensor[picks][:, None] for tensor in (head.q, head.k, head.v))
    if plain:
        return scaled_dot_product_attention(q, k, v, scale=head.scale)[:, 0]
    scores = head.scores()
    chosen = scores[picks[:, :, None], picks[:, None, :]]
    return torch.softmax(chosen, -1) @ v[:, 0]


def _pointwise(
    head: CapturedHead,
    truth: Tensor,
    rows: Tensor,
    n: int,
    replicates: int,
    rng: np.random.Generator,
    replacement: bool,
) -> list[Tensor]:
    plain = head.mask.full and head.softcap is None and head.bias is None
    block = max(1, min(replicates, BLOCK_SCORES // (n * len(rows))))
    found = []
    target = truth[rows]
    scores, order, counts = (None, None, None) if plain else _visible_order(head, rows)
    for start in range(0, replicates, block):
        count = min(block, replicates - start)
        if plain:
            picks = draw(len(head), n, count, rng, replacement)
            query = head.q[rows].expand(count, 1, -1, -1)
            output = scaled_dot_product_attention(
                query, head.k[picks][:, None], head.v[picks][:, None], scale=head.scale
            )[:, 0]
        else:
            assert scores is not None
            assert order is not None
            assert counts is not None
            picks = _visible_picks(order, counts, n, count, rng, replacement)
            chosen = scores.expand(count, -1, -1).gather(2, picks)
            weights = torch.softmax(chosen, -1)
            output = (weights[:, :, None] @ head.v[picks])[:, :, 0]
        found.append((output.double() - target).square().sum(-1).mean(1))
    return found


def _visible_order(head: CapturedHead, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of the queries, their keys with the visible ones first, and how many those are."""
    visible = head.mask.visible(rows)
    order = torch.argsort(visible.int(), dim=1, descending=True, stable=True)
    return head.scores(rows), order, visible.sum(1)


def _visible_picks(
    order: Tensor, counts: Tensor, n: int, count: int, rng: np.random.Generator, replacement: bool
) -> Tensor:
    """Draw keys among each query's visible ones, (count, rows, n)."""
    if replacement:
        uniform = torch.from_numpy(rng.random((count, len(order), n)))
        place = (uniform * counts[None, :, None]).long()
    else:
        ranks = torch.from_numpy(rng.random((count, *order.shape)))
        ranks.masked_fill_(torch.arange(order.shape[1]) >= counts[:, None], 2.0)
        place = torch.argsort(ranks, dim=-1)[..., :n]
    return order.expand(count, -1, -1).gather(2, place)


def scheme_errors(
    head: CapturedHead,
    sampler: Sampler,
    queries: Tensor,
    replicates: int,
    seed: np.random.SeedSequence,
) -> tuple[Array, Array]:
    """Errors of a sampler at `queries`, each query drawing for itself.

    Returns the squared error averaged over queries, and the error of the queries' mean output,
    squared, for each replicate.
    """
    scores, values = head.scores(queries).double(), head.v.double()
    truth = torch.softmax(scores, -1) @ values
    pointwise, mean = [], []
    for outputs in drawn_outputs(sampler, scores, values, queries, replicates, generator_of(seed)):
        errors = outputs - truth
        pointwise.append(errors.square().sum(-1).mean(1))
        mean.append(errors.mean(1).square().sum(-1))
    return torch.cat(pointwise).numpy(), torch.cat(mean).numpy()
