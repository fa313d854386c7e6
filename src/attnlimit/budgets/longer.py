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

from attnlimit.budgets.enough import narrowed
from attnlimit.budgets.seen import Queries
from attnlimit.budgets.tail import Tail
from attnlimit.budgets.terms import Terms

FACTORS = (10, 100)


def longer_contexts(
    texts: Sequence[Queries], needed: Mapping[str, float], context: int, terms: Terms
) -> dict[int, dict[str, int | None]]:
    """Tokens by scheme at each factor of the context; None where nothing can be said."""
    tails = [Tail(queries) for queries in texts]
    return {
        factor: dict.fromkeys(needed)
        | {
            "sample": int(min(needed["sample"], factor * context)),
            "top-k": int(min(factor * needed["top-k"], factor * context)),
            "top-k + sample": max(_mixed(tail, factor, factor * context, terms) for tail in tails),
        }
        for factor in FACTORS
    }


def _mixed(tail: Tail, factor: int, size: int, terms: Terms) -> int:
    """Smallest n that Chebyshev's inequality accepts, of `factor` copies of the keys."""

    def law(n: int) -> float:
        return terms.over_queries(tail.error(n, factor))

    return int(narrowed(law, 1, size, terms.certified))
