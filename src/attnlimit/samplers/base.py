"""Which keys does a query see? One base for every way to choose them.

A sampler answers from what a query knows: its scores on the keys (-inf where a key is not visible)
and its own place among them. It says with what chance each key is kept, and whether the weight of
a kept key is divided by that chance. Everything else follows: draws here, their exact law in
`attnlimit.theory.law`, budgets, and thinned attention inside real models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.samplers.products import Products

Draws = Literal["nothing", "independent", "with replacement", "without replacement"]


class Sampler(ABC):
    """Chooses keys for every query. A new sampler overrides `probabilities` alone.

    Scores have any leading dimensions, then queries and keys, (..., R, N). The best key is kept for
    sure wherever no other key is, so that something always is; laws and draws both include that.
    """

    weighted: bool = False
    """Whether the weight of a kept key is divided by its chance, so that sums are unbiased."""

    @property
    def draws(self) -> Draws:
        """How keys are drawn, which decides the exact law: each by itself, unless overridden.

        With or without replacement means `size` visible keys, all alike.
        """
        return "independent"

    @property
    def name(self) -> str:
        """A few words for tables and pages."""
        return repr(self)

    @property
    def forgets(self) -> bool:
        """Whether keys that a query leaves out are left out by later ones: they may be dropped."""
        return False

    @property
    def sizable(self) -> bool:
        """Whether it can be given another size: whether `sized` is its own."""
        return type(self).sized is not Sampler.sized

    @property
    def asks_keys(self) -> bool:
        """Whether chances depend on the keys themselves, those that no query sees among them."""
        return type(self).seeing is not Sampler.seeing

    @abstractmethod
    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        """Chance of each key to be kept, of the shape of `scores`.

        Parameters
        ----------
        scores : (..., R, N) tensor
            Scores of the queries on the keys, -inf where a key is not visible. What is returned
            there does not matter: invisible keys are never kept.
        queries : (R,) tensor of int
            Place of each query among the keys.
        """

    def seeing(self, products: Products) -> Sampler:
        """Return the sampler as it chooses among these keys: itself, if scores are all it needs.

        Whoever asks for chances or draws gives the queries and keys first, of the same leading
        dimensions as the scores.
        """
        return self

    def sized(self, n: int) -> Sampler:
        """Return the same way to choose, keeping about `n` keys instead."""
        raise BadInput(
            f"{self.name} cannot be given another size; give a sampler that has sized()."
        )

    def looked(self, key: int, number: float) -> float:
        """Bytes read of each visible key to choose: the key itself, for its score is needed.

        A key has `key` numbers of `number` bytes.
        """
        return key * number

    def fetched(self, key: int, value: int, number: float) -> float:
        """Bytes read of each kept key after that: its value, and the key unless it was read."""
        read = self.looked(key, number) >= key * number
        return (value if read else key + value) * number

    def keep(self, scores: Tensor, queries: Tensor) -> Tensor:
        """Chances as they count: none for invisible keys, and one for the best if for no other."""
        visible = scores > -torch.inf
        chance = self.probabilities(scores, queries).to(scores.dtype)
        if chance.shape != scores.shape:
            raise BadInput(
                f"{self.name} gave chances of shape {tuple(chance.shape)} for scores of shape "
                f"{tuple(scores.shape)}; probabilities() must return one for each score."
            )
        if not ((chance >= 0) & (chance <= 1) | ~visible).all():
            raise BadInput(f"{self.name} gave chances that do not lie between 0 and 1.")
        chance = chance.masked_fill(~visible, 0.0)
        unsure = ~(chance == 1).any(-1, keepdim=True)
        if unsure.any():
            best = torch.zeros_like(visible).scatter_(-1, scores.argmax(-1, keepdim=True), True)
            chance = chance.masked_fill(unsure & best, 1.0)
        return chance

    def draw(self, scores: Tensor, queries: Tensor, generator: torch.Generator) -> Tensor:
        """Draw keys: what to add to each score, -inf where a key is left out.

        Attention over the drawn keys is `softmax(scores + sampler.draw(...))`.
        """
        chance = self.keep(scores, queries)
        added = -torch.log(chance) if self.weighted else torch.zeros_like(chance)
        if self.draws == "nothing":
            return added.masked_fill(chance == 0, -torch.inf)
        uniform = torch.rand(
            scores.shape, generator=generator, dtype=scores.dtype, device=scores.device
        )
        return added.masked_fill(uniform >= chance, -torch.inf)


def places(scores: Tensor) -> Tensor:
    """Place of every key, (N,)."""
    return torch.arange(scores.shape[-1], device=scores.device)


def check_sampler(sampler: object) -> Sampler:
    """Return a sampler as it is; refuse anything else with one sentence."""
    if isinstance(sampler, Sampler):
        return sampler
    raise BadInput(
        f"{sampler!r} is not a sampler; give one such as al.TopK(64) or al.Iid(200), or an object "
        "of a class of your own that extends al.Sampler."
    )
