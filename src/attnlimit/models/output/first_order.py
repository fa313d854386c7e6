"""How do a sampler's weights scatter around softmax's? Key by key, for any direction of values.

Let Gamma_0 be the output when every key comes as often as expected, a_j its weights. Drawing key j
or not moves the output by a two-point variable along v_j - Gamma_0, whose mean and variance are
exact; the effects of different keys add up (docs/theory/output.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.samplers import Iid, Sampler, WithoutReplacement


@dataclass(frozen=True, eq=False)
class Scatter:
    """First-order law of the weights a sampler gives; leading dimensions as the scores'."""

    centre: Tensor  # (..., R, N) weights when every key comes as often as expected
    mean: Tensor  # (..., R, N) expected weights; ratios add a second-order term
    spread: Tensor  # (..., R, N) variance of each key's noise
    noise: Tensor  # (..., R) relative variance of the denominator, which must be small
    chance: Tensor  # (..., R, N) that a key is kept

    @property
    def keys(self) -> Tensor:
        """Keys read, expected, (..., R)."""
        return self.chance.sum(-1)

    def variance(self, along: Tensor) -> Tensor:
        """Variance of the output along g, from `along` (..., R, N) = <g, v_j - Gamma>."""
        shift = (self.centre * along).sum(-1, keepdim=True)
        return (self.spread * (along - shift).square()).sum(-1)

    def bias(self, along: Tensor) -> Tensor:
        """Mean error of the output along g."""
        return (self.mean * along).sum(-1)


def scatter(sampler: Sampler, scores: Tensor, weights: Tensor, queries: Tensor) -> Scatter:
    """First-order law of a sampler's weights.

    Parameters
    ----------
    scores : (..., R, N) tensor
        -inf where a key is not visible.
    weights : (..., R, N) tensor
        Their softmax.
    queries : (R,) tensor of int
        Place of each query among the keys.
    """
    chance = sampler.keep(scores, queries)
    if sampler.draws in ("independent", "nothing"):
        mass = weights * (chance > 0) if sampler.weighted else weights * chance
        centre = mass / mass.sum(-1, keepdim=True)
        odds = torch.where(chance > 0, (1 - chance) / chance.clamp_min(1e-30), 0.0)
    elif isinstance(sampler, WithoutReplacement):
        visible = (scores > -torch.inf).sum(-1, keepdim=True).to(scores.dtype)
        centre = weights
        odds = (visible / sampler.size - 1).clamp_min(0) * visible / (visible - 1).clamp_min(1)
    elif isinstance(sampler, Iid):
        visible = (scores > -torch.inf).sum(-1, keepdim=True).to(scores.dtype)
        centre = weights
        odds = visible / sampler.size
    else:
        raise BadInput(
            f"{sampler!r} draws {sampler.draws} in a way of its own, whose effect on the output "
            "cannot be predicted; measure it with try_samplers."
        )
    single = odds * centre.square()
    noise = single.sum(-1)
    if isinstance(sampler, (Iid, WithoutReplacement)):
        noise = noise - (odds / visible)[..., 0]  # as many keys whatever is drawn
    if isinstance(sampler, Iid):
        spread = single
    else:
        # With the others as expected, key j moves the output by a (v_j - Gamma_0) e / (1 + a e),
        # e = 1/p - 1 if it is kept and -1 if not: the two values' mean and variance, exactly; and
        # the noise of the other keys in the denominator adds E 1/D^2 = 1 + 3 noise.
        both = (1 - centre) * (1 + odds * centre)
        single = torch.where(centre < 1, single / both, 0.0)
        spread = torch.where(centre < 1, single / both * (1 + 3 * noise[..., None]), 0.0)
    mean = centre - single + single.sum(-1, keepdim=True) * centre
    return Scatter(centre, mean, spread, noise, chance)
