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
from attnlimit.samplers import Sampler
from attnlimit.samplers.drawn import Drawn

BLOCK_SCORES = 1 << 22
STATISTICS = ("pointwise", "mean", "covariance", "mean_norm", "covariance_norm")

Seed = int | np.random.SeedSequence


def replicate_errors(
    head: CapturedHead,
    statistics: list[str],
    sampler: Drawn,
    replicates: int,
    seed: Seed,
    queries: Tensor | None = None,
) -> dict[str, Array]:
    """Errors of `replicates` draws of tokens, for each statistic.

    In "mean" and "covariance" the tokens drawn are queries and keys. In "pointwise" every token
    (or those in `queries`) asks keys drawn among those it sees, and the error is averaged.
    """
    generator = generator_of(seed)
    found: dict[str, list[Tensor]] = {name: [] for name in statistics if name != "pointwise"}
    truth = head.output().double()
    moments = {name: MOMENTS[name.removesuffix("_norm")] for name in found}
    among = max(sampler.size, 64)
    for picks in _picks(head, sampler, replicates, generator, among) if found else ():
        outputs = _among(head, picks).double()
        for name, moment in moments.items():
            square = (moment(outputs) - moment(truth)).square().flatten(1).sum(1)
            found[name].append(square.sqrt() if name.endswith("_norm") else square)
    errors = {name: torch.cat(parts).numpy() for name, parts in found.items()}
    if "pointwise" in statistics:
        rows = torch.arange(len(head)) if queries is None else queries
        errors["pointwise"] = _pointwise_errors(head, sampler, rows, replicates, generator)
    return errors


def _mean(outputs: Tensor) -> Tensor:
    """Mean of outputs (..., n, d_v)."""
    return outputs.mean(-2)


def _covariance(outputs: Tensor) -> Tensor:
    """Covariance of outputs (..., n, d_v)."""
    around = outputs - outputs.mean(-2, keepdim=True)
    return around.transpose(-1, -2) @ around / outputs.shape[-2]


MOMENTS = {"mean": _mean, "covariance": _covariance}


def _pointwise_errors(
    head: CapturedHead, sampler: Drawn, rows: Tensor, replicates: int, generator: torch.Generator
) -> Array:
    if not head.plain:
        errors = _query_errors(head, sampler, rows, replicates, generator)
        return torch.cat([error.square().sum(-1).mean(1) for error in errors]).numpy()
    # Keys drawn once serve every query: the mean is the same, and fused attention is fast.
    truth, found = head.output()[rows].double(), []
    for picks in _picks(head, sampler, replicates, generator, len(rows)):
        query = head.q[rows].expand(len(picks), 1, -1, -1)
        keys, values = (tensor[picks][:, None] for tensor in (head.k, head.v))
        output = scaled_dot_product_attention(query, keys, values, scale=head.scale)[:, 0]
        found.append((output.double() - truth).square().sum(-1).mean(1))
    return torch.cat(found).numpy()


def _picks(
    head: CapturedHead,
    sampler: Drawn,
    replicates: int,
    generator: torch.Generator,
    rows: int,
) -> Iterator[Tensor]:
    """Tokens drawn among all, (B, n), for `rows` queries, in blocks of all replicates."""
    size = len(head)
    block = max(1, BLOCK_SCORES // max(sampler.size * rows, size))
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
    seeing = sampler.seeing(head.products(queries))
    for outputs in drawn_outputs(seeing, scores, values, queries, replicates, generator):
        yield outputs - truth
