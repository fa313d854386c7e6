"""A captured head's error against n: predicted from one pass, or measured by drawing."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.curve import Curve
from attnlimit.errors import BadInput
from attnlimit.models.capture.captured import Capture, CapturedHead
from attnlimit.models.heads.delta import MAX_PARTICIPATION, MAX_SATURATION, head_expansion
from attnlimit.models.heads.draws import STATISTICS, replicate_errors, scheme_errors
from attnlimit.samplers import Iid, Sampler, WithoutReplacement
from attnlimit.samplers.base import check_sampler
from attnlimit.theory.law.population import population_law
from attnlimit.theory.law.sampler import sampler_law
from attnlimit.theory.law.subset import subset_law
from attnlimit.theory.pairs.population import population_mean_error

METHODS = ("exact", "delta")
SUBSET_QUERIES = 32
SCHEME_QUERIES = 128
NEGLIGIBLE = 40.0


def predict_capture(
    capture: Capture,
    statistic: str,
    n: ArrayLike | None = None,
    *,
    layer: int = 0,
    head: int = 0,
    sampler: Any = None,
    method: str = "exact",
) -> Curve:
    """Predict a head's error against n; nothing is drawn.

    Parameters
    ----------
    statistic : {"mean", "pointwise"}
        "mean" is E|m_n - m|^2 of the mean output, "pointwise" E|Gamma_n(x_i) - Gamma(x_i)|^2
        averaged over the queries.
    n : sequence of int
        Numbers of tokens, for `Iid` and `WithoutReplacement`. Other samplers have their own sizes;
        their curve has the expected number of keys as its only n.
    sampler : optional
        `al.Iid()` by default. With a sampler that keeps keys, all tokens are queries and each
        draws for itself; "mean" is then the error of the mean over queries.
    method : {"exact", "delta"}
        "exact" is the two-query law for the mean and the exact law of each query for "pointwise";
        "delta" the first-order expansion, whose note says where it is unreliable.
    """
    captured = capture[layer, head]
    checks.one_of(statistic, ("mean", "pointwise"), "statistic")
    checks.one_of(method, METHODS, "method")
    chosen = Iid() if sampler is None else check_sampler(sampler)
    if isinstance(chosen, (Iid, WithoutReplacement)):
        counts = _counts(n)
        if method == "delta":
            return _delta(capture, captured, statistic, counts, isinstance(chosen, Iid))
        if isinstance(chosen, Iid):
            return _iid(captured, statistic, counts)
        return _without_replacement(captured, statistic, counts)
    if method == "delta":
        raise BadInput("The delta method is for Iid and WithoutReplacement; use method='exact'.")
    return _scheme(captured, statistic, chosen)


def measure_capture(
    capture: Capture,
    statistic: str,
    n: ArrayLike | None = None,
    replicates: int = 500,
    seed: int = 0,
    *,
    layer: int = 0,
    head: int = 0,
    sampler: Any = None,
) -> Curve:
    """Measure a head's error against n by drawing; arguments as for `predict_capture`.

    `statistic` may also be "covariance", "mean_norm" or "covariance_norm".
    """
    captured = capture[layer, head]
    checks.one_of(statistic, STATISTICS, "statistic")
    draws = checks.count(replicates, "replicates", smallest=2)
    root = np.random.SeedSequence(checks.count(seed, "seed", smallest=0))
    chosen = Iid() if sampler is None else check_sampler(sampler)
    if not isinstance(chosen, (Iid, WithoutReplacement)):
        checks.one_of(statistic, ("mean", "pointwise"), "statistic of a sampler that keeps keys")
        return _measure_scheme(captured, statistic, chosen, draws, root)
    counts = _counts(n)
    replacement = isinstance(chosen, Iid)
    if not replacement and counts.max() > len(captured):
        raise BadInput(f"There are {len(captured)} tokens; n = {counts.max()} of them is too many.")
    queries = _spread(len(captured), SUBSET_QUERIES) if not replacement else None
    values = []
    for count, child in zip(counts, root.spawn(len(counts)), strict=True):
        rng = np.random.default_rng(child)
        found = replicate_errors(
            captured, [statistic], int(count), draws, rng, replacement=replacement, queries=queries
        )
        values.append(found[statistic])
    return _measured(captured, statistic, counts, np.array(values))


def _counts(n: ArrayLike | None) -> NDArray[np.int64]:
    if n is None:
        raise BadInput("Give n, the numbers of tokens to draw.")
    return np.atleast_1d(checks.token_counts(n))


def _spread(size: int, most: int) -> Tensor:
    return torch.from_numpy(np.unique(np.linspace(0, size - 1, min(size, most)).astype(np.int64)))


def _iid(head: CapturedHead, statistic: str, counts: NDArray[np.int64]) -> Curve:
    if statistic == "pointwise":
        total = np.zeros(len(counts))
        check = 0.0
        for _, scores in head.blocks():
            law = population_law(scores, head.v, counts)
            total += law.mse.sum(axis=0)
            check = max(check, law.check)
        value = total / len(head)
        return _theory(head, statistic, counts, value, "exact law", error=check * value)
    order = np.unique(counts)
    scores = head.scores().double()
    # A key that cannot be seen counts as one of negligible weight: every query sees itself.
    floor = scores.amax(1, keepdim=True) - NEGLIGIBLE
    found = population_mean_error(
        torch.maximum(scores, floor).numpy(), head.v.double().numpy(), order
    )
    back = np.searchsorted(order, counts)
    return _theory(
        head, statistic, counts, found.mse[back], "two-query law", error=found.numerical_error[back]
    )


def _without_replacement(head: CapturedHead, statistic: str, counts: NDArray[np.int64]) -> Curve:
    if counts.max() > len(head):
        raise BadInput(f"There are {len(head)} tokens; n = {counts.max()} of them is too many.")
    if statistic == "mean":
        raise BadInput(
            "The mean without replacement has no exact law here; use method='delta' or measure()."
        )
    rows = _spread(len(head), SUBSET_QUERIES)
    scores = head.scores(rows)
    value = np.array([subset_law(scores, head.v, int(n)).mse.mean() for n in counts])
    note = (f"averaged over {len(rows)} of {len(head)} queries",)
    return _theory(head, statistic, counts, value, "exact law, without replacement", notes=note)


def _delta(
    capture: Capture,
    head: CapturedHead,
    statistic: str,
    counts: NDArray[np.int64],
    replacement: bool,
) -> Curve:
    variance, participation, saturation = (
        float(t[0]) for t in head_expansion(capture.layers[head.layer], [head.head])
    )
    if statistic == "pointwise":
        variance = _query_variance(head)
    value = variance / counts
    if not replacement:
        value = value * np.maximum(len(head) - counts, 0) / max(len(head) - 1, 1)
    reliable = (participation / counts < MAX_PARTICIPATION) & (saturation / counts < MAX_SATURATION)
    notes = []
    if not reliable.all():
        listed = ", ".join(map(str, counts[~reliable]))
        notes.append(f"the delta method is unreliable at n = {listed}: use method='exact'")
    curve = _theory(head, statistic, counts, value, "delta method", notes=tuple(notes))
    curve.source["reliable"] = reliable
    return curve


def _query_variance(head: CapturedHead) -> float:
    """Mean over queries of N sum_j P_ij^2 |V_j - O_i|^2."""
    total = 0.0
    counts = head.mask.counts()
    for rows, scores in head.blocks():
        weights = torch.softmax(scores, -1)
        distance = torch.cdist(weights @ head.v, head.v).square()
        total += float(((weights.square() * distance).sum(1) * counts[rows]).double().sum())
    return total / len(head)


def _scheme(head: CapturedHead, statistic: str, sampler: Sampler) -> Curve:
    rows = _spread(len(head), SCHEME_QUERIES)
    scores = head.scores(rows)
    law = sampler_law(sampler, scores, head.v, rows)
    value = law.mse.mean()
    if statistic == "mean":  # queries draw for themselves: only their biases add up
        spread = law.mse - (law.bias**2).sum(axis=1)
        shift = law.bias.mean(axis=0)
        value = spread.sum() / len(rows) ** 2 + shift @ shift
    notes = (sampler.name, f"{len(rows)} of {len(head)} queries")
    counts = np.array([round(float(law.kept.mean()))])
    return _theory(
        head, statistic, counts, np.array([value]), "exact law of the scheme", notes=notes
    )


def _measure_scheme(
    head: CapturedHead,
    statistic: str,
    sampler: Sampler,
    replicates: int,
    seed: np.random.SeedSequence,
) -> Curve:
    rows = _spread(len(head), SCHEME_QUERIES)
    scores = head.scores(rows)
    kept = sampler.keep(scores, rows).sum(-1).mean()
    found = scheme_errors(head, sampler, rows, replicates, seed)
    values = found[0 if statistic == "pointwise" else 1]
    notes = (sampler.name, f"{len(rows)} of {len(head)} queries")
    return _measured(head, statistic, np.array([round(float(kept))]), values[None], notes)


def _theory(
    head: CapturedHead,
    statistic: str,
    counts: NDArray[np.int64],
    value: Array,
    method: str,
    *,
    error: Array | None = None,
    notes: tuple[str, ...] = (),
) -> Curve:
    return Curve(
        statistic=statistic,
        n=counts,
        value=value,
        stderr=np.zeros(len(counts)),
        method=method,
        numerical_error=error,
        notes=notes,
        source={"layer": head.layer, "head": head.head, "tokens": len(head)},
    )


def _measured(
    head: CapturedHead,
    statistic: str,
    counts: NDArray[np.int64],
    values: Array,
    notes: tuple[str, ...] = (),
) -> Curve:
    """Curve of `values` (len(n), replicates); each n has draws of its own."""
    replicates = values.shape[1]
    variance = values.var(axis=1, ddof=1) / replicates
    return Curve(
        statistic=statistic,
        n=counts,
        value=values.mean(axis=1),
        stderr=np.sqrt(variance),
        method="monte carlo",
        covariance=np.diag(variance),
        replicates=replicates,
        notes=notes,
        source={"layer": head.layer, "head": head.head, "tokens": len(head)},
    )
