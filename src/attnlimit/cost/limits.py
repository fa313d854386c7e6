"""What does the limit of 10^12 tokens cost? The exact law, beside the draws it makes needless."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnlimit.cost import counts
from attnlimit.cost.rates import Rates
from attnlimit.cost.timing import core_seconds, one_thread

SIZES = (10**3, 10**6, 10**9, 10**12)
DIM = 50
DRAWS = 100
YEAR = 365.25 * 24 * 3600.0


def limit_costs(rates: Rates, sizes: Sequence[int] = SIZES) -> pd.DataFrame:
    """Core-seconds of the exact laws at each n, measured; and of 100 draws there, extrapolated.

    A head of the Gaussian experiment at horizon near one. "one query" is the error at a query, of
    which a draw looks at n pairs; "mean output" that of all n tokens' mean output, whose draws ask
    an eighth of the tokens.
    """
    from attnlimit.reproduce.temperatures import paper_head
    from attnlimit.theory import pointwise_error, predict
    from attnlimit.tokens import Gaussian

    tokens = Gaussian(dim=DIM, variance=0.1)
    head = paper_head(DIM, 9.0)
    query = tokens.sample(1, np.random.default_rng(0))
    rows = []
    with one_thread():
        pointwise_error(head, tokens, query, [100])  # what is only done the first time
        predict(head, tokens, "mean", [100])
        for n in sizes:
            law = core_seconds(lambda n=n: pointwise_error(head, tokens, query, [n]), 3)  # type: ignore[misc]
            mean = core_seconds(lambda n=n: predict(head, tokens, "mean", [n]))  # type: ignore[misc]
            drawn = counts.sweep([n], DRAWS, DIM)
            value = predict(head, tokens, "mean", [n])
            rows.append(
                {
                    "n": n,
                    "one query, exact s": law,
                    "mean output, exact s": mean,
                    "root error": float(value.root[0]),
                    "pairs of 100 draws": drawn.pairs,
                    "core-years of 100 draws": rates.of("sweep", drawn) / YEAR,
                    "GB of one draw": drawn.bytes / 1e9,
                }
            )
    return pd.DataFrame(rows)
