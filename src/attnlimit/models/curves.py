"""Error of a captured head against n: predicted by its laws, or measured by drawing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.curve import Curve, Diagnostics
from attnlimit.errors import BadInput
from attnlimit.intervals import excess_kurtosis, skewness
from attnlimit.models.attention import row_blocks
from attnlimit.models.captured import Captured, CapturedHead
from attnlimit.models.profile import head_influence
from attnlimit.samplers import Iid, Sampler
from attnlimit.samplers.base import check_sampler, generator_of
from attnlimit.simulate.engine import drawn_outputs
from attnlimit.theory.one_query.population import population_law
from attnlimit.theory.one_query.sampler import sampler_law
from attnlimit.theory.two_query.population import population_mean_error
from attnlimit.threads import one_thread

STATISTICS = ("pointwise", "mean", "covariance", "mean_norm", "covariance_norm")
SUBSET_QUERIES = 64
"""Queries at which the law of draws without replacement is evaluated: 10 ms each."""
NEGLIGIBLE = 40.0
"""Score below the largest at which a key that is not visible enters a two-query law."""
BLOCK_SCORES = 1 << 22

Counts = NDArray[np.int64]
Seed = int | np.random.SeedSequence


def predict_capture(
    capture: Captured,
    statistic: str,
    n: ArrayLike | None = None,
    *,
    layer: int = 0,
    head: int = 0,
    sampler: Sampler | None = None,
    method: str = "exact",
) -> Curve:
    """Predict the error of a captured head against n; nothing is drawn.

    Parameters
    ----------
    statistic : {"mean", "pointwise"}
        "mean" is E|m_n - m|^2 of the mean output, "pointwise" E|Gamma_n(x_i) - Gamma(x_i)|^2
        averaged over the queries. Use `al.measure` for "covariance".
    n : sequence of int
        Numbers of tokens, each given to `sampler.with_size`. Without it a sampler has its own size,
        and the curve has the expected number of keys as its only n.
    sampler : Sampler, optional
        `al.Iid()` by default. With one that keeps keys, every token is a query and draws for
        itself; "mean" is then the error of the mean output over all queries.
    method : {"exact", "delta"}
        "exact" is the two-query law for "mean" and the law of each query for "pointwise"; "delta"
        the first-order expansion, with a note where it is unreliable.
    """
    captured = capture[layer, head]
    checks.one_of(statistic, ("mean", "covariance", "pointwise"), "statistic")
    checks.one_of(method, ("exact", "delta"), "method")
    counts, samplers = _with_sizes(captured, Iid() if sampler is None else sampler, n)
    draws = samplers[0].draws
    if statistic == "covariance":
        raise BadInput(
            "The covariance of a captured head's outputs has no law here; use measure()."
        )
    with one_thread():
        if counts is None or not _is_uniform(samplers[0]):
            if method == "delta":
                raise BadInput(
                    "The delta method is for Iid and WithoutReplacement; use method='exact'."
                )
            return _sampler_curve(captured, statistic, counts, samplers)
        if method == "delta":
            return _delta(captured, statistic, draws == "with replacement", counts)
        if statistic == "mean":
            if draws != "with replacement":
                raise BadInput(
                    "The mean over keys drawn without replacement has a first-order law only; use "
                    "method='delta', or measure()."
                )
            return _two_query(captured, counts)
        if draws == "with replacement":
            return _independent_draws(captured, counts)
        return _sampler_curve(captured, statistic, counts, samplers)


def measure_capture(
    capture: Captured,
    statistic: str,
    n: ArrayLike | None = None,
    replicates: int = 500,
    seed: int = 0,
    *,
    layer: int = 0,
    head: int = 0,
    sampler: Sampler | None = None,
) -> Curve:
    """Measure the error of a captured head against n by drawing, as `predict_capture` defines it.

    With `Iid` and `WithoutReplacement`, `statistic` may also be "covariance", "mean_norm" or
    "covariance_norm".
    """
    captured = capture[layer, head]
    checks.one_of(statistic, STATISTICS, "statistic")
    draws = checks.count(replicates, "replicates", smallest=2)
    root = np.random.SeedSequence(checks.count(seed, "seed", smallest=0))
    counts, samplers = _with_sizes(captured, Iid() if sampler is None else sampler, n)
    notes = () if sampler is None or counts is not None else (sampler.name,)
    uniform = _is_uniform(samplers[0])
    if not uniform:
        checks.one_of(statistic, ("pointwise", "mean"), "statistic of a sampler of keys")
    values = []
    with one_thread():
        for chosen, child in zip(samplers, root.spawn(len(samplers)), strict=True):
            if uniform:
                errors = replicate_errors(captured, [statistic], chosen, draws, child)[statistic]
            else:
                both = scheme_errors(captured, chosen, None, draws, child)
                errors = both[0 if statistic == "pointwise" else 1]
            values.append(errors)
        sizes = np.array([_mean_kept(captured, samplers[0])]) if counts is None else counts
    errors = np.array(values)
    variance = errors.var(axis=1, ddof=1) / draws  # each n has draws of its own
    curve = _curve(captured, statistic, sizes, errors.mean(axis=1), "monte carlo", notes)
    shape = replace(
        curve.diagnostics, skewness=skewness(errors.T), kurtosis=excess_kurtosis(errors.T)
    )
    return replace(
        curve,
        replicates=draws,
        diagnostics=shape,
        stderr=np.sqrt(variance),
        covariance=np.diag(variance),
    )


def _is_uniform(sampler: Sampler) -> bool:
    """Whether a sampler draws a given number of the visible keys, all alike."""
    return sampler.draws in ("with replacement", "without replacement")


def _size(sampler: Sampler) -> int:
    """Number of keys that a uniform sampler draws."""
    return int(sampler.size)  # type: ignore[attr-defined]


def _with_sizes(
    head: CapturedHead, sampler: Sampler, n: ArrayLike | None
) -> tuple[Counts | None, list[Sampler]]:
    """Return the sizes n and a sampler of each; None where a sampler has its own size."""
    check_sampler(sampler)
    if n is None:
        if not _is_uniform(sampler):
            return None, [sampler]
        if getattr(sampler, "n", None) is None:
            raise BadInput("Give n, the numbers of tokens to draw.")
        n = _size(sampler)
    fewest = 2 if sampler.draws == "with replacement" else 1
    counts = np.atleast_1d(checks.token_counts(n, smallest=fewest))
    if counts.ndim > 1 or not counts.size:
        raise BadInput(f"n must be a number or a list of numbers, got shape {counts.shape}.")
    if sampler.draws == "without replacement" and counts.max() > len(head):
        raise BadInput(
            f"There are {len(head)} tokens; n = {counts.max()} of them is too many; give smaller n."
        )
    return counts, [sampler.with_size(int(count)) for count in counts]


def _sampler_curve(
    head: CapturedHead, statistic: str, counts: Counts | None, samplers: list[Sampler]
) -> Curve:
    """Law of each sampler at every query; of draws without replacement at evenly spaced ones.

    Queries draw independently: with errors of mean b_i and mean square s_i the mean output over N
    queries has the mean square error sum_i (s_i - |b_i|^2) / N^2 + |sum_i b_i|^2 / N^2. Where
    queries are left out, the numerical error is the standard error of the average.
    """
    size, uniform = len(head), _is_uniform(samplers[0])
    most = min(size, SUBSET_QUERIES) if uniform else size
    places = torch.from_numpy(np.unique(np.linspace(0, size - 1, most).astype(np.int64)))
    value, kept, spread = np.zeros((3, len(samplers)))
    for k, sampler in enumerate(samplers):
        laws = []
        for rows in places.split(max(1, BLOCK_SCORES // size)):
            bound = sampler.bind(head.products(rows))
            laws.append(sampler_law(bound, head.scores(rows), head.v, rows))
        square, bias = (np.concatenate([getattr(law, f) for law in laws]) for f in ("mse", "bias"))
        total = bias.sum(axis=0)
        alone = (square - (bias**2).sum(axis=1)).sum()
        value[k] = square.mean() if statistic == "pointwise" else (alone + total @ total) / size**2
        kept[k] = np.mean(np.concatenate([law.kept for law in laws]))
        spread[k] = square.var(ddof=1) / len(square)
    left_out = 1 - len(places) / size
    notes = (f"average over {len(places)} of {size} queries",) if left_out else ()
    notes = notes if uniform else (samplers[0].name,)
    error = np.sqrt(left_out * spread) if uniform else None
    sizes = kept if counts is None else counts
    return _curve(head, statistic, sizes, value, "exact law of the sampler", notes, error=error)


def _independent_draws(head: CapturedHead, counts: Counts) -> Curve:
    total, check = np.zeros(len(counts)), 0.0
    for _, scores in head.blocks():
        law = population_law(scores, head.v, counts)
        total += law.mse.sum(axis=0)
        check = max(check, law.check)
    value = total / len(head)
    return _curve(head, "pointwise", counts, value, "exact law", error=check * value)


def _two_query(head: CapturedHead, counts: Counts) -> Curve:
    scores = head.scores().double()
    # A key that is not visible has negligible weight, since every query sees itself.
    visible = torch.maximum(scores, scores.amax(1, keepdim=True) - NEGLIGIBLE)
    order, back = np.unique(counts, return_inverse=True)
    predicted = population_mean_error(visible.numpy(), head.v.double().numpy(), order)
    error = predicted.numerical_error[back]
    return _curve(head, "mean", counts, predicted.mse[back], "two-query law", error=error)


def _delta(head: CapturedHead, statistic: str, replacement: bool, counts: Counts) -> Curve:
    influence = head_influence(head)
    variance = influence.variance
    if statistic == "pointwise":  # mean over queries of n_i sum_j P_ij^2 |V_j - O_i|^2
        total = 0.0
        for _, scores in head.blocks():
            weights = torch.softmax(scores, -1)
            distance = torch.cdist(weights @ head.v, head.v).square()
            each = (weights.square() * distance).sum(1) * (scores > -torch.inf).sum(1)
            total += float(each.double().sum())
        variance = total / len(head)
    size = len(head)
    # Of different tokens the error is smaller by (N - n) / (N - 1).
    left = 1.0 if replacement else np.maximum(size - counts, 0) / max(size - 1, 1)
    value, reliable = variance / counts * left, influence.reliable(counts)
    notes: tuple[str, ...] = ()
    if not reliable.all():
        listed = ", ".join(map(str, counts[~reliable]))
        notes = (f"the delta method is unreliable at n = {listed}: use method='exact'",)
    return _curve(head, statistic, counts, value, "delta method", notes, reliable=reliable)


def _mean_kept(head: CapturedHead, sampler: Sampler) -> float:
    """Expected number of keys that a query keeps."""
    kept = 0.0
    for rows, scores in head.blocks():
        bound = sampler.bind(head.products(rows))
        places = torch.arange(rows.start, rows.stop)
        kept += float(bound.inclusion_probabilities(scores, places).sum())
    return kept / len(head)


def _curve(
    head: CapturedHead,
    statistic: str,
    sizes: ArrayLike,
    value: Array,
    method: str,
    notes: tuple[str, ...] = (),
    *,
    error: Array | None = None,
    reliable: NDArray[np.bool_] | None = None,
) -> Curve:
    """Curve of the head by theory, which has no standard error; sizes are rounded."""
    place = Diagnostics(layer=head.layer, head=head.head, tokens=len(head), reliable=reliable)
    counts, stderr = np.rint(sizes).astype(np.int64), np.zeros(len(value))
    return Curve(
        statistic, counts, value, stderr, method, None, error, notes=notes, diagnostics=place
    )


def replicate_errors(
    head: CapturedHead, statistics: list[str], sampler: Sampler, replicates: int, seed: Seed
) -> dict[str, Array]:
    """Errors of `replicates` uniform draws of tokens, for each statistic.

    In "mean" and "covariance" the tokens drawn are queries and keys. In "pointwise" every token is
    a query over keys drawn among those it sees, and the error is averaged over the queries.
    """
    generator = generator_of(seed)
    parts: dict[str, list[Tensor]] = {name: [] for name in statistics if name != "pointwise"}
    truth = head.output().double()
    among = max(_size(sampler), 64)
    for picks in _picks(head, sampler, replicates, generator, among) if parts else ():
        outputs = _among(head, picks).double()
        for name, errors in parts.items():
            gap = _moment(outputs, name) - _moment(truth, name)
            square = gap.square().flatten(1).sum(1)
            errors.append(square.sqrt() if name.endswith("_norm") else square)
    by_statistic = {name: torch.cat(errors).numpy() for name, errors in parts.items()}
    if "pointwise" in statistics and not head.plain:
        by_statistic["pointwise"] = scheme_errors(head, sampler, None, replicates, generator)[0]
    elif "pointwise" in statistics:
        # Keys drawn once serve every query: the mean is the same, and fused attention is fast.
        pointwise = []
        for picks in _picks(head, sampler, replicates, generator, len(head)):
            query = head.q.expand(len(picks), 1, -1, -1)
            keys, values = (tensor[picks][:, None] for tensor in (head.k, head.v))
            output = scaled_dot_product_attention(query, keys, values, scale=head.scale)[:, 0]
            pointwise.append((output.double() - truth).square().sum(-1).mean(1))
        by_statistic["pointwise"] = torch.cat(pointwise).numpy()
    return by_statistic


def _moment(outputs: Tensor, statistic: str) -> Tensor:
    """Mean or covariance of outputs (..., n, d_v)."""
    mean = outputs.mean(-2, keepdim=True)
    if statistic.startswith("mean"):
        return mean
    return (outputs - mean).transpose(-1, -2) @ (outputs - mean) / outputs.shape[-2]


def _picks(
    head: CapturedHead,
    sampler: Sampler,
    replicates: int,
    generator: torch.Generator,
    rows: int,
) -> Iterator[Tensor]:
    """Tokens drawn among all, (B, n), for `rows` queries, in blocks of all replicates."""
    size = len(head)
    for block in row_blocks(replicates, max(_size(sampler) * rows, size), BLOCK_SCORES):
        alike = torch.zeros(block.stop - block.start, 1, size)
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
    head: CapturedHead,
    sampler: Sampler,
    queries: Tensor | None,
    replicates: int,
    seed: Seed | torch.Generator,
) -> tuple[Array, Array]:
    """Errors of a sampler at `queries` (all by default), each query drawing for itself.

    Returns, for each replicate, the squared error averaged over the queries, and the squared error
    of the queries' mean output.
    """
    generator = seed if isinstance(seed, torch.Generator) else generator_of(seed)
    places = torch.arange(len(head)) if queries is None else queries
    values = head.v.double()
    square = torch.zeros(replicates, dtype=torch.float64)
    total = torch.zeros(replicates, values.shape[1], dtype=torch.float64)
    for rows in places.split(max(1, BLOCK_SCORES // len(head))):
        scores = head.scores(rows).double()
        truth = torch.softmax(scores, -1) @ values
        bound = sampler.bind(head.products(rows))
        start = 0
        for outputs in drawn_outputs(bound, scores, values, rows, replicates, generator):
            errors = outputs - truth
            block = slice(start, start + len(errors))
            square[block] += errors.square().sum((1, 2))
            total[block] += errors.sum(1)
            start = block.stop
    mean = total / len(places)
    return (square / len(places)).numpy(), mean.square().sum(-1).numpy()
