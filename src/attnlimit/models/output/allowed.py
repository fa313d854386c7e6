"""How far may the output move? One target in the user's words, as a distance."""

from __future__ import annotations

import numpy as np

from attnlimit import checks
from attnlimit.errors import BadInput


def distance_allowed(
    kl: float | None, perplexity: float | None, cosine: float | None
) -> tuple[str, float]:
    """What is kept, and within what distance."""
    given = {"kl": kl, "perplexity": perplexity, "cosine": cosine}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        raise BadInput(
            f"Give one target, kl=0.01, perplexity=1.01 or cosine=0.999; got {len(named)}."
        )
    value = checks.real_number(given[named[0]], named[0])
    if named[0] == "kl":
        if value <= 0:
            raise BadInput(f"kl must be above 0, got {value:g}: only dense attention has no error.")
        return "kl", value
    if named[0] == "perplexity":
        if value <= 1:
            raise BadInput(
                f"perplexity is the factor by which it may grow, above 1 like 1.01, got {value:g}."
            )
        return "kl", float(np.log(value))
    if not 0 < value < 1:
        raise BadInput(f"cosine must lie between 0 and 1, like 0.999, got {value:g}.")
    return "cosine", 1 - value
