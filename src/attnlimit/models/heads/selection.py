"""Which tokens are worth keeping? Influence against heavy hitters, recent and random ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models.capture.captured import Capture, CapturedHead
from attnlimit.models.heads.influence import layer_influence

RULES = (
    "influence",
    "heavy hitters",
    "recent",
    "first and recent",
    "random",
    "influence, weighted",
    "heavy hitters, weighted",
)
DRAWN = ("random", "influence, weighted", "heavy hitters, weighted")
RANDOM_DRAWS = 20


def selection_error(
    capture: Capture, layer: int, n: Sequence[int], *, head: int | None = None, seed: int = 0
) -> pd.DataFrame:
    """Error of a layer's outputs when every query sees only the same n tokens (and itself).

    Parameters
    ----------
    n : sequence of int
        Numbers of tokens kept.
    head : int, optional
        One head; all heads of the layer together by default, with one set of tokens for all.

    Notes
    -----
    The plain rules keep the n tokens of the highest score and forget the rest, which biases every
    softmax. The weighted ones keep token j with probability p_j proportional to its score (at most
    one, n in expectation) and divide its weight by p_j.

    Returns
    -------
    DataFrame
        For each n and rule, `output_error`, the root mean square error of the outputs over that
        of the outputs themselves, and `mean_error`, that of the mean output; both with the
        standard error over draws, zero for rules that draw nothing.
    """
    number = capture.check_layer(layer)
    heads = list(range(capture.heads)) if head is None else [capture.check_head(head)]
    counts = np.atleast_1d(checks.token_counts(n, smallest=1))
    if counts.max() > len(capture):
        raise BadInput(f"There are {len(capture)} tokens; {counts.max()} of them is too many.")
    found = layer_influence(capture.layers[number], heads)
    orders = {
        "influence": torch.argsort(found.size.square().sum(0), descending=True),
        "heavy hitters": torch.argsort(found.received.sum(0), descending=True),
        "recent": torch.arange(len(capture) - 1, -1, -1),
        "first and recent": _first_and_recent(len(capture)),
    }
    scores = {
        "influence, weighted": found.size.square().sum(0).sqrt(),
        "heavy hitters, weighted": found.received.sum(0),
    }
    captured = [capture[number, h] for h in heads]
    rng = np.random.default_rng(seed)
    rows = []
    for count in counts.tolist():
        for rule in RULES:
            kept = [
                _keep(rule, orders, scores, count, len(capture), rng)
                for _ in range(RANDOM_DRAWS if rule in DRAWN else 1)
            ]
            errors = np.array([_errors(captured, found.output, *choice) for choice in kept])
            spread = errors.std(axis=0, ddof=1) / len(kept) ** 0.5 if len(kept) > 1 else [0.0, 0.0]
            output, mean = errors.mean(axis=0)
            rows.append(
                {
                    "n": count,
                    "rule": rule,
                    "output_error": output,
                    "output_error_stderr": spread[0],
                    "mean_error": mean,
                    "mean_error_stderr": spread[1],
                }
            )
    return pd.DataFrame(rows)


def _keep(
    rule: str,
    orders: dict[str, Tensor],
    scores: dict[str, Tensor],
    count: int,
    size: int,
    rng: np.random.Generator,
) -> tuple[Tensor, Tensor]:
    """Return which tokens are kept, (N,), and what is added to their scores."""
    keep = torch.zeros(size, dtype=torch.bool)
    if rule in scores:
        chance = _proportional(scores[rule], count)
        keep = torch.from_numpy(rng.random(size)) < chance
        return keep, -torch.log(chance.clamp_min(1e-30)).float()
    if rule == "random":
        keep[torch.from_numpy(rng.permutation(size)[:count].copy())] = True
    else:
        keep[orders[rule][:count]] = True
    return keep, torch.zeros(size)


def _proportional(scores: Tensor, count: int) -> Tensor:
    """Chances proportional to `scores`, at most one, that sum to `count`."""
    chance = torch.zeros(len(scores), dtype=torch.double)
    capped = torch.zeros(len(scores), dtype=torch.bool)
    weights = scores.double().clamp_min(1e-12 * float(scores.max()))
    while True:
        left = count - int(capped.sum())
        chance = torch.where(capped, 1.0, left * weights / weights[~capped].sum().clamp_min(1e-300))
        over = (chance > 1) & ~capped
        if not over.any() or left <= 0:
            return chance.clamp_max(1.0)
        capped |= over


def _first_and_recent(size: int) -> Tensor:
    """The first four tokens, then the last ones backwards."""
    first = torch.arange(min(4, size))
    return torch.cat([first, torch.arange(size - 1, len(first) - 1, -1)])


def _errors(
    heads: list[CapturedHead], outputs: Tensor, keep: Tensor, added: Tensor
) -> tuple[float, float]:
    """Relative error of the outputs and of their mean, over all heads together."""
    miss = size = mean_miss = mean_size = 0.0
    for head, output in zip(heads, outputs, strict=True):
        parts = []
        for rows, scores in head.blocks():
            own = torch.arange(rows.start, rows.stop)
            kept = keep.expand(scores.shape).clone()
            kept[torch.arange(len(own)), own] = True
            shift = added.expand(scores.shape).clone()
            shift[torch.arange(len(own)), own] = 0.0  # a query always sees itself, as it is
            weights = torch.softmax((scores + shift).masked_fill(~kept, -torch.inf), -1)
            parts.append(weights @ head.v)
        gap = (torch.cat(parts) - output).double()
        miss += float(gap.square().sum())
        size += float(output.double().square().sum())
        mean_miss += float(gap.mean(0).square().sum())
        mean_size += float(output.double().mean(0).square().sum())
    return (miss / size) ** 0.5, (mean_miss / mean_size) ** 0.5
