"""A captured head's error against n: predicted from one pass, or measured by drawing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.curve import Curve, Diagnostics
from attnlimit.errors import BadInput
from attnlimit.models.capture.captured import Captured, CapturedHead
from attnlimit.models.heads.delta import first_order, head_expansion, is_reliable
from attnlimit.models.heads.draws import STATISTICS, replicate_errors, scheme_errors
from attnlimit.samplers import Iid, Sampler, WithoutReplacement
from attnlimit.samplers.base import check_sampler
from attnlimit.samplers.drawn import Drawn
from attnlimit.skewed import excess_kurtosis, skewness
from attnlimit.theory.law.population import population_law
from attnlimit.theory.law.sampled import SamplerLaw
from attnlimit.theory.law.sampler import sampler_law
from attnlimit.theory.pairs.error import MeanError
from attnlimit.theory.pairs.finite.covariance import FiniteCovariance, finite_covariance_error
from attnlimit.theory.pairs.finite.mean import distinct_mean_error, population_mean_error

SUBSET_QUERIES = 32
SCHEME_QUERIES = 128
COVARIANCE_TOKENS = 512
NEGLIGIBLE = 40.0

Counts = NDArray[np.int64]


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
    """Predict a head's error against n; nothing is drawn.

    Parameters
    ----------
    statistic : {"mean", "covariance", "pointwise"}
        "mean" is E|m_n - m|^2 of the mean output, "covariance" E|Cov_n - Cov|_F^2 of the outputs'
        covariance (`al.Iid()` only), "pointwise" E|Gamma_n(x_i) - Gamma(x_i)|^2 averaged over the
        queries.
    n : sequence of int
        Numbers of tokens, each given to `sampler.sized`. Without it a sampler has its own size,
        and the curve has the expected number of keys as its only n.
    sampler : Sampler, optional
        `al.Iid()` by default. With one that keeps keys, all tokens are queries and each draws for
        itself; "mean" is then the error of the mean over queries.
    method : {"exact", "delta"}
        "exact" is the two-query law for "mean" and "covariance" and the exact law of each query
        for "pointwise"; "delta" the first-order expansion, whose note says where it is unreliable.
    """
    captured = capture[layer, head]
    checks.one_of(statistic, ("mean", "covariance", "pointwise"), "statistic")
    checks.one_of(method, ("exact", "delta"), "method")
    counts, samplers = _sized(captured, Iid() if sampler is None else sampler, n)
    chosen = samplers[0]
    if statistic == "covariance":
        _check_covariance(captured, chosen, method)
    if method == "delta":
        if counts is None or not isinstance(chosen, Drawn):
            raise BadInput(
                "The delta method is for Iid and WithoutReplacement; use method='exact'."
            )
        return _delta(capture, captured, statistic, chosen, counts)
    if isinstance(chosen, Iid) and counts is not None:
        return _iid(captured, statistic, counts)
    if isinstance(chosen, WithoutReplacement) and statistic == "mean" and counts is not None:
        return _moment(captured, statistic, counts, distinct_mean_error)
    rows, notes = _queries(captured, chosen)
    scores = captured.scores(rows)
    seen = captured.products(rows)
    laws = [sampler_law(one.seeing(seen), scores, captured.v, rows) for one in samplers]
    kept = np.array([round(float(law.kept.mean())) for law in laws]) if counts is None else counts
    value = np.array([_average(law, statistic) for law in laws])
    return _curve(captured, statistic, kept, value, "exact law of the sampler", notes)


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
    """Measure a head's error against n by drawing; arguments as for `predict_capture`.

    With `Iid` and `WithoutReplacement`, `statistic` may also be "covariance", "mean_norm" or
    "covariance_norm".
    """
    captured = capture[layer, head]
    checks.one_of(statistic, STATISTICS, "statistic")
    draws = checks.count(replicates, "replicates", smallest=2)
    root = np.random.SeedSequence(checks.count(seed, "seed", smallest=0))
    counts, samplers = _sized(captured, Iid() if sampler is None else sampler, n)
    rows, notes = _queries(captured, samplers[0])
    values, kept = [], []
    for one, child in zip(samplers, root.spawn(len(samplers)), strict=True):
        if isinstance(one, Drawn):
            found = replicate_errors(captured, [statistic], one, draws, child, rows)[statistic]
        else:
            checks.one_of(statistic, ("pointwise", "mean"), "statistic of a sampler of keys")
            both = scheme_errors(captured, one, rows, draws, child)
            found = both[0 if statistic == "pointwise" else 1]
        values.append(found)
        if counts is None:
            chosen = one.seeing(captured.products(rows))
            kept.append(round(float(chosen.keep(captured.scores(rows), rows).sum(-1).mean())))
    places, errors = np.array(kept) if counts is None else counts, np.array(values)
    variance = errors.var(axis=1, ddof=1) / draws  # each n has draws of its own
    curve = _curve(captured, statistic, places, errors.mean(axis=1), "monte carlo", notes)
    spread = {"stderr": np.sqrt(variance), "covariance": np.diag(variance)}
    bent = replace(
        curve.diagnostics, skewness=skewness(errors.T), kurtosis=excess_kurtosis(errors.T)
    )
    return replace(curve, replicates=draws, diagnostics=bent, **spread)


def _sized(
    head: CapturedHead, sampler: Sampler, n: ArrayLike | None
) -> tuple[Counts | None, list[Sampler]]:
    """Samplers of the sizes asked for, and those sizes; None where a sampler has its own."""
    check_sampler(sampler)
    if n is None:
        if not isinstance(sampler, Drawn):
            return None, [sampler]
        if sampler.n is None:
            raise BadInput("Give n, the numbers of tokens to draw.")
        n = sampler.n
    fewest = 2 if isinstance(sampler, Iid) else 1
    counts = np.atleast_1d(checks.token_counts(n, smallest=fewest))
    if isinstance(sampler, WithoutReplacement) and counts.max() > len(head):
        raise BadInput(f"There are {len(head)} tokens; n = {counts.max()} of them is too many.")
    return counts, [sampler.sized(int(count)) for count in counts]


def _queries(head: CapturedHead, sampler: Sampler) -> tuple[Tensor, tuple[str, ...]]:
    """Queries at which a law is evaluated, evenly spread, and the words for them."""
    size = len(head)
    if isinstance(sampler, Iid):
        return torch.arange(size), ()
    most = SUBSET_QUERIES if isinstance(sampler, WithoutReplacement) else SCHEME_QUERIES
    rows = np.unique(np.linspace(0, size - 1, min(size, most)).astype(np.int64))
    return torch.from_numpy(rows), (sampler.name, f"{len(rows)} of {size} queries")


def _average(law: SamplerLaw, statistic: str) -> float:
    if statistic == "pointwise":
        return float(law.mse.mean())
    # Queries draw for themselves: only their biases add up.
    spread = law.mse - (law.bias**2).sum(axis=1)
    shift = law.bias.mean(axis=0)
    return float(spread.sum() / len(spread) ** 2 + shift @ shift)


def _iid(head: CapturedHead, statistic: str, counts: Counts) -> Curve:
    if statistic == "pointwise":
        total = np.zeros(len(counts))
        check = 0.0
        for _, scores in head.blocks():
            law = population_law(scores, head.v, counts)
            total += law.mse.sum(axis=0)
            check = max(check, law.check)
        value = total / len(head)
        return _curve(head, statistic, counts, value, "exact law", error=check * value)
    if statistic == "covariance":
        return _moment(head, statistic, counts, finite_covariance_error)
    return _moment(head, statistic, counts, population_mean_error)


def _moment(
    head: CapturedHead,
    statistic: str,
    counts: Counts,
    law: Callable[[Array, Array, Counts], MeanError | FiniteCovariance],
) -> Curve:
    order = np.unique(counts)
    scores = head.scores().double()
    # A key that cannot be seen counts as one of negligible weight: every query sees itself.
    seen = torch.maximum(scores, scores.amax(1, keepdim=True) - NEGLIGIBLE)
    found = law(seen.numpy(), head.v.double().numpy(), order)
    back = np.searchsorted(order, counts)
    mse, error = found.mse[back], found.numerical_error[back]
    return _curve(head, statistic, counts, mse, "two-query law", error=error)


def _check_covariance(head: CapturedHead, sampler: Sampler, method: str) -> None:
    if not isinstance(sampler, Iid) or method != "exact":
        raise BadInput(
            "The covariance of a captured head is predicted for Iid and method='exact' only: four "
            "tokens meet in it, and no other way to draw has that law here; use measure()."
        )
    if len(head) > COVARIANCE_TOKENS:
        raise BadInput(
            f"The covariance's law sums over pairs of tokens: at most {COVARIANCE_TOKENS}, and "
            f"there are {len(head)}; capture a shorter passage or use measure()."
        )


def _delta(capture: Captured, head: CapturedHead, statistic: str, drawn: Drawn, n: Counts) -> Curve:
    expansion = head_expansion(capture.layers[head.layer], [head.head])
    variance, participation, saturation = (tensor[0].numpy() for tensor in expansion)
    if statistic == "pointwise":
        variance = np.asarray(_query_variance(head))
    value = first_order(variance, n, len(head), isinstance(drawn, Iid))
    reliable = is_reliable(participation, saturation, n)
    notes: tuple[str, ...] = ()
    if not reliable.all():
        listed = ", ".join(map(str, n[~reliable]))
        notes = (f"the delta method is unreliable at n = {listed}: use method='exact'",)
    return _curve(head, statistic, n, value, "delta method", notes, reliable=reliable)


def _query_variance(head: CapturedHead) -> float:
    """Mean over queries of N sum_j P_ij^2 |V_j - O_i|^2."""
    total = 0.0
    counts = head.mask.counts()
    for rows, scores in head.blocks():
        weights = torch.softmax(scores, -1)
        distance = torch.cdist(weights @ head.v, head.v).square()
        total += float(((weights.square() * distance).sum(1) * counts[rows]).double().sum())
    return total / len(head)


def _curve(
    head: CapturedHead,
    statistic: str,
    counts: Counts,
    value: Array,
    method: str,
    notes: tuple[str, ...] = (),
    *,
    error: Array | None = None,
    reliable: NDArray[np.bool_] | None = None,
) -> Curve:
    """Curve of the head by theory, which has no standard error."""
    place = Diagnostics(layer=head.layer, head=head.head, tokens=len(head), reliable=reliable)
    stderr = np.zeros(len(counts))
    return Curve(
        statistic, counts, value, stderr, method, None, error, notes=notes, diagnostics=place
    )
