"""What does a captured head give over sampled tokens, drawn? Errors of many replicates at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnlimit.checks import Array
from attnlimit.models.capture.captured import CapturedHead
from attnlimit.montecarlo.sampled import drawn_outputs, generator_of
from attnlimit.samplers import Iid, Sampler, WithoutReplacement

BLOCK_SCORES = 1 << 22
STATISTICS = ("pointwise", "mean", "covariance", "mean_norm", "covariance_norm")

Seed = int | np.random.SeedSequence


def replicate_errors(
    head: CapturedHead,
    statistics: list[str],
    sampler: Iid | WithoutReplacement,
    replicates: int,
    seed: Seed,
    queries: Tensor | None = None,
) -> dict[str, Array]:
    """Errors of `replicates` draws of tokens, for each statistic.

    In "mean" and "covariance" the tokens drawn are queries and keys. In "pointwise" every token
    (or those in `queries`) asks keys drawn among those it sees, and the error is averaged.
    """
    generator = generator_of(seed)
    found: dict[str, list[Tensor]] = {name: [] for name in statistics}
    truth = head.output().double()
    target_mean = truth.mean(0)
    centred = truth - target_mean
    target_cov = centred.T @ centred / len(truth)
    moments = [name for name in statistics if name != "pointwise"]
    for picks in _picks(head, sampler, replicates if moments else 0, generator):
        outputs = _among(head, picks).double()
        mean = outputs.mean(1)
        miss = (mean - target_mean).square().sum(-1)
        around = outputs - mean[:, None]
        cov = around.transpose(1, 2) @ around / outputs.shape[1]
        gap = (cov - target_cov).square().sum((-1, -2))
        values = {"mean": miss, "covariance": gap}
        for name in moments:
            value = values[name.removesuffix("_norm")]
            found[name].append(value.sqrt() if name.endswith("_norm") else value)
    rows = torch.arange(len(head)) if queries is None else queries
    if "pointwise" in found and head.plain:
        # Keys drawn once serve every query: the mean is the same, and fused attention is fast.
        for picks in _picks(head, sampler, replicates, generator, len(rows)):
            query = head.q[rows].expand(len(picks), 1, -1, -1)
            keys, values_ = (tensor[picks][:, None] for tensor in (head.k, head.v))
            output = scaled_dot_product_attention(query, keys, values_, scale=head.scale)[:, 0]
            found["pointwise"].append((output.double() - truth[rows]).square().sum(-1).mean(1))
    elif "pointwise" in found:
        errors = _query_errors(head, sampler, rows, replicates, generator)
        found["pointwise"] = [error.square().sum(-1).mean(1) for error in errors]
    return {name: torch.cat(parts).numpy() for name, parts in found.items()}


def _picks(
    head: CapturedHead,
    sampler: Iid | WithoutReplacement,
    replicates: int,
    generator: torch.Generator,
    rows: int | None = None,
) -> Iterator[Tensor]:
    """Tokens drawn among all, (B, n), in blocks that together are all replicates."""
    size, n = len(head), sampler.size
    block = max(1, BLOCK_SCORES // max(n * (max(n, 64) if rows is None else rows), size))
    for start in range(0, replicates, block):
        alike = torch.zeros(min(block, replicates - start), 1, size)
        added = sampler.draw(alike, torch.zeros(1, dtype=torch.long), generator)
        times = added.exp().round().long().flatten()
        tokens = torch.arange(size).repeat(len(alike))
        yield tokens.repeat_interleave(times).unflatten(0, (len(alike), -1))


def _among(head: CapturedHead, picks: Tensor) -> Tensor:
    """Outputs (B, n, d_v) of the tokens `picks` (B, n) over themselves."""
    q, k, v = (tensor[picks][:, None] for tensor in (head.q, head.k, head.v))
    if head.plain:
        return scaled_dot_product_attention(q, k, v, scale=head.scale)[:, 0]
    chosen = head.scores()[picks[:, :, None], picks[:, None, :]]
    return torch.softmax(chosen, -1) @ v[:, 0]


def scheme_errors(
    head: CapturedHead, sampler: Sampler, queries: Tensor, replicates: int, seed: Seed
) -> tuple[Array, Array]:
    """Errors of a sampler at `queries`, each query drawing for itself.

    Returns the squared error averaged over queries, and the error of the queries' mean output,
    squared, for each replicate.
    """
    pointwise, mean = [], []
    for errors in _query_errors(head, sampler, queries, replicates, generator_of(seed)):
        pointwise.append(errors.square().sum(-1).mean(1))
        mean.append(errors.mean(1).square().sum(-1))
    return torch.cat(pointwise).numpy(), torch.cat(mean).numpy()


def _query_errors(
    head: CapturedHead,
    sampler: Sampler,
    queries: Tensor,
    replicates: int,
    generator: torch.Generator,
) -> Iterator[Tensor]:
    """Errors (b, R, d_v) in blocks that together are all replicates."""
    scores, values = head.scores(queries).double(), head.v.double()
    truth = torch.softmax(scores, -1) @ values
    for outputs in drawn_outputs(sampler, scores, values, queries, replicates, generator):
        yield outputs - truth
