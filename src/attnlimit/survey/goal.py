"""What must stay of a model's output? A distance that is allowed, and how it may be reached."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from attnlimit import checks
from attnlimit.models.output.allowed import distance_allowed
from attnlimit.models.output.target import choose_target
from attnlimit.models.spend.outputs import predicts_tokens

USUAL = {"kl": 0.01, "cosine": 0.001}
STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
LOWEST, HIGHEST = 1 / 20, 10


@dataclass(frozen=True)
class Goal:
    """The output's allowed distance, and what a plan that keeps it is chosen from."""

    output: str  # "kl" or "cosine"
    allowed: float  # KL in nats, or 1 - cosine of the embedding
    per: str = "model"
    scheme: str = "threshold"
    cost: str = "read"
    probes: int = 4
    repeats: int = 3  # of every measurement that draws

    def targets(self) -> list[float]:
        """Distances around the allowed one, in steps that a person can read."""
        usual = USUAL[self.output]
        around = [step * usual * 10**power for power in range(-3, 2) for step in STEPS]
        low, high = LOWEST * (1 - 1e-9) * usual, HIGHEST * (1 + 1e-9) * usual
        kept = {float(f"{one:.6g}") for one in around if low <= one <= high}
        return sorted(kept | {self.allowed})


def goal_for(network: Any, **asked: Any) -> Goal:
    """Return what was asked of a model's output; what is usual for its kind if nothing was."""
    goal = goal_of("kl" if predicts_tokens(network) else "cosine", **asked)
    choose_target(network, goal.output)
    return goal


def goal_of(
    usual: str,
    *,
    kl: float | None = None,
    perplexity: float | None = None,
    cosine: float | None = None,
    repeats: int | None = None,
    **how: Any,
) -> Goal:
    """Return what was asked of an output; the `usual` distance of its kind if nothing was."""
    if kl is perplexity is cosine is None:
        goal = Goal(usual, USUAL[usual], **how)
    else:
        goal = Goal(*distance_allowed(kl, perplexity, cosine), **how)
    times = goal.repeats if repeats is None else checks.count(repeats, "repeats", smallest=2)
    return replace(goal, repeats=times)
