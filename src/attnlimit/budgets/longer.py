"""What would a longer context take? Extrapolated with the head's own law, never measured.

A context of c times the length "with the same law" is one in which every key has c copies.

- A draw with replacement does not know the size of the population: it needs as many tokens.
- The same share of the weight takes c times as many best keys.
- Best keys with a weighted sample: to first order, with n/2 best keys of the cN and each other key
  kept with chance pi, E|error|^2 = (1/pi - 1) / c * sum of p_j^2 |v_j - Gamma|^2 over the keys that
  are not among the best n/(2c) of one copy.
- First tokens and neighbours: not extrapolated. What they leave out lies further away than anything
  in the text, and how a head scores at such distances is not in its law here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from attnlimit.budgets.enough import narrowed
from attnlimit.budgets.schemes import Queries
from attnlimit.budgets.terms import Terms
from attnlimit.checks import Array

FACTORS = (10, 100)


def longer_contexts(
    texts: Sequence[Queries], needed: Mapping[str, float], context: int, terms: Terms
) -> dict[int, dict[str, int | None]]:
    """Tokens by scheme at each factor of the context; None where nothing can be said."""
    tails = [_Tail(queries) for queries in texts]
    return {
        factor: dict.fromkeys(needed)
        | {
            "sample": int(min(needed["sample"], factor * context)),
            "top-k": int(min(factor * needed["top-k"], factor * context)),
            "top-k + sample": max(tail.mixed(factor, factor * context, terms) for tail in tails),
        }
        for factor in FACTORS
    }


class _Tail:
    """What is left of each query's second moment without its best keys."""

    def __init__(self, queries: Queries) -> None:
        weights, order = torch.sort(queries.weights, dim=1, descending=True)
        distance = torch.cdist(
            queries.output, queries.values, compute_mode="donot_use_mm_for_euclid_dist"
        )
        part = (weights * distance.gather(1, order)).square()
        left = torch.cat([part, torch.zeros(len(part), 1)], 1).flip(1).cumsum(1).flip(1)
        self.left = (left / torch.from_numpy(queries.size).clamp_min(1e-300)[:, None] ** 2).numpy()
        self.visible = (queries.scores > -torch.inf).sum(1).numpy()

    def error(self, n: int, factor: int) -> Array:
        """Relative root mean square error (R,) with n tokens of `factor` copies of the keys."""
        best = max(1, n // 2)
        place = min(best / factor, self.left.shape[1] - 1)
        low = int(place)
        high = min(low + 1, self.left.shape[1] - 1)
        left = self.left[:, low] + (place - low) * (self.left[:, high] - self.left[:, low])
        rest = np.maximum(factor * self.visible - best, 0)
        odds = np.maximum(rest / max(n - best, 1) - 1, 0)
        return np.asarray(np.sqrt(odds / factor * left))

    def mixed(self, factor: int, size: int, terms: Terms) -> int:
        """Smallest n that Chebyshev's inequality accepts."""

        def law(n: int) -> float:
            return terms.over_queries(self.error(n, factor))

        return int(narrowed(law, 1, size, terms.certified))
