"""Base class of samplers: inclusion probabilities, their correction, draws, and their text.

A sampler chooses keys for a query from its scores on the keys (-inf where a key is not visible) and
its own position among them. It gives the inclusion probability of each key and says whether the
weight of a kept key is divided by that probability. The rest follows: draws here, their exact law
in `attnlimit.theory.one_query`, plans, and sampled attention inside models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from attnlimit.errors import BadInput
from attnlimit.samplers.proxies import Proxy

Draws = Literal[
    "nothing",
    "independent",
    "dependent",
    "pages",
    "values",
    "with replacement",
    "without replacement",
]


@dataclass(frozen=True, eq=False)
class Products:
    """Queries and keys behind the scores; leading dimensions are those of the scores."""

    query: Tensor  # (..., R, d), times the scale of scores
    key: Tensor  # (..., N, d)
    scores: Callable[[Tensor], Tensor]  # of products: soft cap, positions; -inf where not visible
    heads: list[int] | None = None  # of the first dimension; None for all
    known: dict[Any, Any] = field(default_factory=dict)  # what samplers share, of all heads

    def exact(self) -> Tensor:
        """Scores (..., R, N) by the keys themselves."""
        return self.scores(self.query @ self.key.transpose(-1, -2))

    def weights(self, proxy: Proxy) -> Tensor:
        """Attention weights by a proxy of the keys, (..., R, N); computed once for all heads."""
        if proxy not in self.known:
            approximate = self.scores(proxy.products(self.query, self.key))
            self.known[proxy] = torch.softmax(approximate, -1)
        weights: Tensor = self.known[proxy]
        return weights if self.heads is None else weights[self.heads]

    def of(self, heads: list[int]) -> Products:
        """The products of some heads."""
        return replace(self, heads=heads)


class Sampler(ABC):
    """Chooses keys for every query. A new sampler overrides `probabilities` alone.

    Scores have any leading dimensions, then queries and keys, (..., R, N). Where no key has
    probability one, the key of the largest score gets it, so that one key is always kept; laws and
    draws both include that.
    """

    spec_name: ClassVar[str | None] = None
    """Name in plan files and on the command line, set by `attnlimit.samplers.register`."""

    weighted: bool = False
    """Whether the weight of a kept key is divided by its probability, so that sums are unbiased."""

    @property
    def draws(self) -> Draws:
        """How keys are drawn, which decides the exact law: independently, unless overridden.

        With or without replacement means `size` visible keys, all equally likely. "pages" means
        that keys of a page are drawn together (`TwoLevel`), "values" that value rows are drawn by
        their weights when all keys are read (`Santa`). "dependent" is any other way: it has no
        exact law, and the first order takes keys as independent.
        """
        return "independent"

    @property
    def name(self) -> str:
        """Short description for tables and pages."""
        return repr(self)

    @property
    def threshold(self) -> float | None:
        """c of a rule that keeps key j with probability min(1, c P_j); None for other rules."""
        return None

    @property
    def levels(self) -> int:
        """How many levels of keys `fast_decoding` reads for it; 0 if it does not run the rule."""
        return 0

    @property
    def resizable(self) -> bool:
        """Whether `with_size` is implemented."""
        return type(self).with_size is not Sampler.with_size

    @property
    def needs_keys(self) -> bool:
        """Whether probabilities depend on the keys themselves, and not only on scores."""
        return type(self).bind is not Sampler.bind

    @abstractmethod
    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        """Probability of each key to be kept, of the shape of `scores`.

        Parameters
        ----------
        scores : (..., R, N) tensor
            Scores of the queries on the keys, -inf where a key is not visible. The values returned
            there are ignored: invisible keys are never kept.
        queries : (R,) tensor of int
            Position of each query among the keys.
        """

    def bind(self, products: Products) -> Sampler:
        """Return the sampler for these queries and keys: itself, if scores are all it needs.

        Callers bind before they take probabilities or draws; leading dimensions are those of the
        scores.
        """
        return self

    def with_size(self, n: float) -> Sampler:
        """Return the same rule with about `n` keys kept."""
        raise BadInput(f"{self.name} has no other sizes; give a sampler with with_size().")

    def selection_bytes(self, key: int, number: float) -> float:
        """Bytes read of each visible key to choose: the whole key, whose score is needed.

        A key has `key` numbers of `number` bytes.
        """
        return key * number

    def candidate_bytes(self, key: int, number: float) -> float:
        """Bytes read of each key that `candidates` chooses, before any is kept."""
        return 0.0

    def candidates(self, scores: Tensor, queries: Tensor) -> Tensor | None:
        """Probability that a key is looked at to choose, where that depends on the query."""
        return None

    def gather_bytes(self, key: int, value: int, number: float) -> float:
        """Bytes read of each kept key after that: its value, and the key unless it was read."""
        read = self.selection_bytes(key, number) >= key * number
        return (value if read else key + value) * number

    def inclusion_probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        """Checked probabilities: zero for invisible keys, one for the best key if for no other."""
        visible = scores > -torch.inf
        chance = self.probabilities(scores, queries).to(scores.dtype)
        if chance.shape != scores.shape:
            raise BadInput(
                f"{self.name} gave probabilities of shape {tuple(chance.shape)} for scores of "
                f"shape {tuple(scores.shape)}; probabilities() must return one for each score."
            )
        if not ((chance >= 0) & (chance <= 1) | ~visible).all():
            raise BadInput(f"{self.name} gave probabilities outside 0 to 1; they must lie there.")
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
        chance = self.inclusion_probabilities(scores, queries)
        added = -torch.log(chance) if self.weighted else torch.zeros_like(chance)
        if self.draws == "nothing":
            return added.masked_fill(chance == 0, -torch.inf)
        uniform = torch.rand(
            scores.shape, generator=generator, dtype=scores.dtype, device=scores.device
        )
        return added.masked_fill(uniform >= chance, -torch.inf)

    def arguments(self) -> str:
        """Text of the arguments, which `from_arguments` reads: the fields, separated by commas."""
        if not is_dataclass(self):
            raise BadInput(f"{self!r} is no dataclass; override arguments() and from_arguments().")
        return ",".join(str(getattr(self, each.name)) for each in fields(self))

    @classmethod
    def from_arguments(cls, text: str) -> Sampler:
        """Build the sampler from what `arguments` wrote: numbers, True and False."""
        if not is_dataclass(cls):
            raise BadInput(f"{cls.__name__} is no dataclass; override from_arguments().")
        given = text.split(",") if text else []
        if len(given) > len(fields(cls)):
            raise BadInput(f"{cls.__name__} takes {len(fields(cls))} arguments, got {text!r}.")
        try:
            return cls(*map(_parsed, given))
        except TypeError:  # an argument is missing
            names = ",".join(each.name for each in fields(cls))
            raise BadInput(f"{cls.spec_name} takes {names}, got {text!r}.") from None


class ByKeys(Sampler):
    """A rule that depends on the keys themselves, so that it has to be bound to them."""

    def probabilities(self, scores: Tensor, queries: Tensor) -> Tensor:
        raise BadInput(
            f"{self.name} needs queries and keys, and there are only scores here; call "
            "sampler.bind(products) first."
        )


@dataclass(frozen=True, eq=False)
class BoundSampler(Sampler):
    """A rule for given queries and keys."""

    rule: Any

    @property
    def draws(self) -> Draws:
        draws: Draws = self.rule.draws
        return draws

    @property
    def weighted(self) -> bool:  # type: ignore[override]
        return bool(self.rule.weighted)

    @property
    def name(self) -> str:
        return str(self.rule.name)


def _parsed(text: str) -> Any:
    """Read an int, a float, True, False or None."""
    words: dict[str, Any] = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise BadInput(f"{text!r} is not a number.")


def generator_of(seed: int | np.random.SeedSequence) -> torch.Generator:
    """Torch's generator for a seed, or for a child of numpy's seed sequence."""
    root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    return torch.Generator().manual_seed(int(root.generate_state(1, np.uint64)[0] >> 1))


def positions(scores: Tensor) -> Tensor:
    """Position of every key, (N,)."""
    return torch.arange(scores.shape[-1], device=scores.device)


def check_sampler(sampler: object) -> Sampler:
    """Return a sampler unchanged; refuse anything else."""
    if isinstance(sampler, Sampler):
        return sampler
    raise BadInput(
        f"{sampler!r} is not a sampler; give one such as al.TopK(64) or al.Iid(200), or an object "
        "of a class of your own that extends al.Sampler."
    )
