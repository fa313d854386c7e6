"""A causal model on fewer keys against one dense run."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from attnlimit.models.loading import LoadedModel, load_once
from attnlimit.models.passes import Encoded, encode, run
from attnlimit.models.sampled import Samplers, sampled_attention
from attnlimit.planning.target import NextToken
from attnlimit.reproduce.documents import passage


class Dense:
    """A model's own next tokens over a passage, to which any number of runs are compared."""

    def __init__(self, model: str, text: str, tokens: int) -> None:
        self.model: LoadedModel = load_once(model)
        self.encoded: Encoded = encode(self.model, passage(model, text, tokens))
        self.target = NextToken()
        with torch.no_grad():
            self.read = self.target.read(run(self.model.model, self.encoded))

    def against(self, samplers: Samplers, seed: int, repeats: int = 1) -> dict[str, float]:
        """KL of the dense run from thinned ones, its standard error, and keys read by a query."""
        values, keys = [], 0.0
        for repeat in range(repeats):
            with (
                torch.no_grad(),
                sampled_attention(self.model, samplers, seed=seed + repeat) as stats,
            ):
                other = self.target.read(run(self.model.model, self.encoded))
            values.append(self.target.between(self.read, other))
            keys += stats.mean_keys / repeats
        spread = float(np.std(values, ddof=1) / repeats**0.5) if repeats > 1 else 0.0
        return {"measured": float(np.mean(values)), "measured_stderr": spread, "keys": keys}


@lru_cache(maxsize=1)
def dense(model: str, text: str, tokens: int) -> Dense:
    """Return the dense run over the first tokens of a text, once in a process."""
    return Dense(model, text, tokens)
