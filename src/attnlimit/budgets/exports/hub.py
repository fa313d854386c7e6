"""Which epsilon of sparse-attention-hub's adaptive sampling is a plan's?

Its sampler bounds the relative error of the softmax's denominator by epsilon with probability
1 - delta, by a normal law: a relative variance of (epsilon / z)^2, z the normal quantile of
1 - delta. A threshold c has a relative variance of at most 1/c, so its epsilon is z / sqrt(c). A
budget file has an epsilon and a delta of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from attnlimit.budgets.exports.folder import (
    Choices,
    Export,
    Format,
    as_json,
    is_count,
    must,
    read_object,
)
from attnlimit.budgets.exports.needs import Needs
from attnlimit.errors import BadInput
from attnlimit.samplers import Threshold

FILE = "adaptive_sampling.json"
DELTA = 0.05


def promised(needs: Needs) -> tuple[float, float, str]:
    """Epsilon and delta for the whole model, and what is lost."""
    values = "its bound uses the denominator alone, and values never enter"
    if needs.terms is not None:
        lost = f"One epsilon for a model: the sizes of single heads are lost, and {values}."
        return needs.terms.epsilon, needs.terms.delta, lost
    chosen = [sampler for row in needs.samplers for sampler in row]
    dense = sum(sampler is None for sampler in chosen)
    if dense:
        raise BadInput(
            f"{dense} heads of the plan read all keys, and sparse-attention-hub has one epsilon "
            "for all heads; plan with --per model, or a larger error."
        )
    levels = [s.c for s in chosen if isinstance(s, Threshold) and s.proxy is None]
    if len(levels) < len(chosen):
        raise BadInput(
            "Only thresholds without a proxy have an epsilon in sparse-attention-hub; plan with "
            "--scheme threshold."
        )
    alike = "" if len(set(levels)) == 1 else ", that of the most demanding head"
    lost = (
        f"One epsilon for a model{alike}: it samples all keys alike, so it reads more than the "
        f"plan for the same error, and {values}."
    )
    return float(norm.isf(DELTA) / np.sqrt(max(levels))), DELTA, lost


def make(needs: Needs, choices: Choices) -> Export:
    """Fields of an AdaptiveSamplingMaskerConfig."""
    epsilon, delta, lost = promised(needs)
    if not 0 < epsilon < 1:
        raise BadInput(
            f"sparse-attention-hub takes an epsilon between 0 and 1, and the plan's is "
            f"{epsilon:.3g}; plan for a smaller error."
        )
    between = needs.context - choices.sinks - choices.recent
    if between < 2:
        raise BadInput(
            f"Nothing is left to sample between {choices.sinks} sinks and {choices.recent} recent "
            f"tokens of the plan's {needs.context}; give fewer --sinks and --recent."
        )
    # A first sample no larger than what the least demanding head reads; two show a spread.
    first = float(np.clip(needs.kept.min(), 2 / between, 0.5))
    config = {
        "base_rate_sampling": first,
        "epsilon": epsilon,
        "delta": delta,
        "init_offset": choices.sinks,
        "local_offset": choices.recent,
    }
    return Export(
        to="hub",
        model=needs.model,
        files={FILE: as_json(config)},
        use=(
            f"AdaptiveSamplingMaskerConfig(**fields of {FILE}), after maskers that keep the "
            f"{choices.sinks} first and {choices.recent} recent tokens"
        ),
        lost=lost,
        numbers={},
        table=pd.DataFrame({"field": [*config], "value": [*config.values()]}),
    )


def check(folder: Path) -> dict[str, Any]:
    """Fields in the ranges that the config accepts."""
    path = folder / FILE
    config = read_object(path)
    for name in ("base_rate_sampling", "epsilon", "delta"):
        value = config.get(name)
        must(type(value) is float and 0 < value < 1, path, f"an object with {name} in (0, 1)")
    for name in ("init_offset", "local_offset"):
        must(is_count(config.get(name)), path, f"an object with {name} zero or more")
    must(len(config) == 5, path, "an object of five fields")
    return config


FORMAT = Format(make, check)
