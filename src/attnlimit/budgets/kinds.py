"""What kind of head is it, can it be thinned, and what must then be kept?"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from attnlimit.budgets.seen import Queries
from attnlimit.models.heads.profile import score_deviations

SINK_WEIGHT = 0.25
FEW_TOKENS = 16


@dataclass(frozen=True)
class Kind:
    """A head's kind, whether at most half its tokens are enough, and what must be kept."""

    name: str  # "sink", "frozen", "retrieval", "diffuse" or "dense"
    thinnable: bool
    keep: str
    score_std: float  # median over queries
    frozen: float  # share of queries with a deviation beyond sqrt(2 log n)
    effective_tokens: float  # median of 1 / sum p^2
    sink: int  # place of the token with the most weight
    sink_weight: float  # its mean weight


KIND = tuple(field.name for field in fields(Kind))[1:]
"""What a budget file says of a kind beside its name."""


def kind_of(queries: Queries, best: str, tokens: int) -> Kind:
    """Classify a head whose best scheme keeps `tokens` tokens."""
    weights = queries.weights
    deviation, edge = score_deviations(queries.scores)
    received = weights.mean(0)
    sink = int(received.argmax())
    weight = float(received[sink])
    frozen = float((deviation >= edge).mean())
    effective = float(np.median(1 / weights.square().sum(1).numpy()))
    thinnable = tokens <= len(queries.head) // 2
    if weight >= SINK_WEIGHT:
        name = "sink"
    elif frozen >= 0.5:
        name = "frozen"
    elif not thinnable:
        name = "dense"
    else:
        name = "retrieval" if effective < FEW_TOKENS and best != "sample" else "diffuse"
    keep = _keep(name, best, tokens, sink, thinnable)
    spread = float(np.median(deviation))
    return Kind(name, thinnable, keep, spread, frozen, effective, sink, weight)


def _keep(name: str, best: str, tokens: int, sink: int, thinnable: bool) -> str:
    if not thinnable:
        always = f"; token {sink} above all" if name == "sink" else ""
        return f"everything: half of the tokens are not enough{always}"
    how = {
        "sample": f"any {tokens} tokens, drawn at random",
        "top-k": f"the {tokens} best keys of each query",
        "local": f"the {tokens} tokens around or just before each query, and the first ones",
        "top-k + sample": f"the {tokens // 2} best keys and as many others, drawn and weighted",
    }.get(best, f"the {tokens} tokens of {best}")
    return f"token {sink}, and {how}" if name == "sink" and best != "top-k" else how
