"""Which tokens are worth keeping? Influence against heavy hitters, recent and random ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models.capture.captured import Captured, CapturedHead
from attnlimit.models.heads.influence import layer_influence
from attnlimit.montecarlo.sampled import generator_of
from attnlimit.samplers import Sampler, SinksAndRecent, TopK, WithoutReplacement

DRAWS = 20


@dataclass(frozen=True)
class Proportional(Sampler):
    """Token j kept with a chance proportional to e^score, at most one, `n` tokens on average."""

    n: int

    weighted = True

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        """Chances that sum to n: what goes over one is shared among the others."""
        weights = torch.softmax(scores, -1)
        capped = torch.zeros_like(weights, dtype=torch.bool)
        while True:
            left = self.n - capped.sum(-1, keepdim=True)
            total = weights.masked_fill(capped, 0.0).sum(-1, keepdim=True).clamp_min(1e-300)
            chance = torch.where(capped, 1.0, left * weights / total)
            over = (chance > 1) & ~capped
            if not over.any():
                return chance
            capped |= over


Rule = tuple[str, Callable[[int], Sampler]]
"""What is known of each token, and how n of them are chosen by it."""

_RULES: dict[str, Rule] = {
    "influence": ("influence", TopK),
    "heavy hitters": ("received", TopK),
    "recent": ("nothing", lambda n: SinksAndRecent(0, n)),
    "first and recent": ("nothing", SinksAndRecent(4, 0).sized),
    "random": ("nothing", WithoutReplacement),
    "influence, weighted": ("influence", Proportional),
    "heavy hitters, weighted": ("received", Proportional),
}
RULES = tuple(_RULES)


def selection_error(
    capture: Captured, layer: int, n: Sequence[int], *, head: int | None = None, seed: int = 0
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
    known = {
        "influence": found.size.square().sum(0).sqrt(),
        "received": found.received.sum(0),
        "nothing": torch.ones(len(capture)),
    }
    # Tokens are chosen as the last query would choose keys, by the logarithm of what is known.
    scores = {
        name: torch.log(size.double().clamp_min(1e-12 * float(size.max())))[None]
        for name, size in known.items()
    }
    last = torch.tensor([len(capture) - 1])
    captured = [capture[number, h] for h in heads]
    generator = generator_of(checks.count(seed, "seed", smallest=0))
    rows = []
    for count in counts.tolist():
        for rule, (name, sampler_of) in _RULES.items():
            sampler = sampler_of(count)
            times = 1 if sampler.draws == "nothing" else DRAWS
            added = [sampler.draw(scores[name], last, generator)[0] for _ in range(times)]
            errors = np.array([_errors(captured, found.output, one.float()) for one in added])
            spread = errors.std(axis=0, ddof=1) / times**0.5 if times > 1 else np.zeros(2)
            both = np.stack([errors.mean(axis=0), spread], axis=1)
            rows.append((count, rule, *both.ravel().tolist()))
    names = ("output_error", "output_error_stderr", "mean_error", "mean_error_stderr")
    return pd.DataFrame(rows, columns=["n", "rule", *names])


def _errors(heads: list[CapturedHead], outputs: Tensor, added: Tensor) -> tuple[float, float]:
    """Relative error of the outputs and of their mean, over all heads together.

    `added` (N,) goes to the scores of the tokens; -inf leaves one out.
    """
    miss = size = mean_miss = mean_size = 0.0
    for head, output in zip(heads, outputs, strict=True):
        parts = []
        for rows, scores in head.blocks():
            own = torch.arange(rows.start, rows.stop)
            shift = added.repeat(len(own), 1)
            shift[torch.arange(len(own)), own] = 0.0  # a query always sees itself, as it is
            parts.append(torch.softmax(scores + shift, -1) @ head.v)
        gap = (torch.cat(parts) - output).double()
        miss += float(gap.square().sum())
        size += float(output.double().square().sum())
        mean_miss += float(gap.mean(0).square().sum())
        mean_size += float(output.double().mean(0).square().sum())
    return (miss / size) ** 0.5, (mean_miss / mean_size) ** 0.5
