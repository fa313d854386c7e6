"""Measured loss while decoding, and thresholds that keep it at a target.

Some decoded tokens are read again, a block at a time, in one dense pass over the cache as it was
before them. The KL divergence of their next tokens is measured, with what earlier tokens of the
block left in the cache, and the cache gets their dense keys and values. Blocks follow each other
from the prompt on, so that they start from a cache without errors, until the share of the time is
used up. The loss is estimated as a ratio: losses of tokens that were read again over their weights
c^-LOSS_POWER, times the mean weight of all tokens, which is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from attnlimit.constants import LOSS_POWER, PRIOR_TOKENS, SEEN_BY_BLOCKS

SHARE = 0.05
"""Share of the time that reading again may take."""
AHEAD = 450
"""Tokens at least whose time the share is of, so that blocks come early."""
BLOCK = 48
"""Tokens of a block."""
BOUNDS = 1 / 16, 16.0
"""Bounds of the factor on the thresholds."""


@dataclass
class Losses:
    """Losses of checked tokens, and weights of all."""

    kl: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)  # of checked tokens
    total: float = 0.0  # weight of all tokens
    tokens: int = 0
    stored: float = 0.0  # predicted loss of the cache's bits and evictions, which checks do not see

    def add_tokens(self, count: int, weight: float) -> None:
        """Count the tokens of a batch."""
        self.total += count * weight
        self.tokens += count

    def add_checked(self, kl: Tensor, weight: float) -> None:
        """Add tokens whose loss was measured."""
        self.kl += kl.ravel().tolist()
        self.weights += [weight] * kl.numel()

    def mean(self) -> float:
        """Loss of a token in nats."""
        if not self.kl:
            return float("nan")
        return sum(self.kl) / sum(self.weights) * self.total / self.tokens

    def stderr(self) -> float:
        """Standard error of the loss, that of a ratio."""
        kl, weights = np.array(self.kl), np.array(self.weights)
        if len(kl) < 2:
            return float("nan")
        residual = kl - kl.sum() / weights.sum() * weights
        scale = self.total / self.tokens / weights.mean()
        return float(scale * residual.std(ddof=1) / len(kl) ** 0.5)


class Controller:
    """Chooses which tokens are read again, and moves thresholds by what that shows.

    Parameters
    ----------
    target : float or None
        Mean KL divergence of a token, in nats.
    every : int or None
        Read every so-many-th token densely on its own as well.
    predicted : float or None
        Loss that a plan predicts for its thresholds.
    """

    def __init__(
        self, target: float | None, every: int | None, predicted: float | None = None
    ) -> None:
        self.target, self.every = target, every
        self.expected = predicted or target or 0.0  # loss with the thresholds as they are given
        self.prior = PRIOR_TOKENS[0] if predicted else PRIOR_TOKENS[1]
        self.losses = Losses()
        self.since = 0  # tokens since one was read both ways
        self.seconds_each: list[float] = []  # of each token read both ways
        self.step_seconds, self.steps = 0.0, 0
        self.block_seconds, self.blocks = 0.0, 0
        self.factor = 1.0  # on every threshold
        self._move()

    @property
    def active(self) -> bool:
        """Whether some tokens are checked."""
        return self.target is not None or self.every is not None

    def due(self) -> bool:
        """Whether the next token is to be read both ways."""
        self.since += 1
        return self.every is not None and self.since >= self.every

    def next_block(self) -> int:
        """Return how many tokens from the next one on are to be read again, or 0."""
        if self.target is None:
            return 0
        if not self.blocks:
            return BLOCK
        spent = self.block_seconds * (1 + 1 / self.blocks)
        until = self.step_seconds / self.steps * max(self.steps + BLOCK, AHEAD)
        return BLOCK if spent <= SHARE * (spent + until) else 0

    @contextmanager
    def timed_block(self) -> Iterator[None]:
        """Count a block of tokens that is read again, and its time."""
        start = time.perf_counter()
        yield
        self.block_seconds += time.perf_counter() - start
        self.blocks += 1

    def timed_check(self, run: Callable[[], Tensor]) -> Tensor:
        """Run a token densely, and count the time."""
        start = time.perf_counter()
        result = run()
        self.seconds_each.append(time.perf_counter() - start)
        self.since = 0
        return result

    @property
    def weight(self) -> float:
        """Loss with the thresholds as they are, over that with the given ones."""
        return float(self.factor**-LOSS_POWER)

    def add(self, dense: Tensor | None, log: Tensor, seconds: float) -> None:
        """Take a token's log probabilities (B, vocabulary), with the dense logits if there are."""
        self.step_seconds += seconds
        self.steps += 1
        self.losses.add_tokens(len(log), self.weight)
        if dense is not None and self.target is None:
            true = torch.log_softmax(dense.float(), -1)
            self.losses.add_checked(divergence(true, log), self.weight)

    def add_block(self, kl: Tensor) -> None:
        """Take the losses (n, B) of tokens that were read again, and move the thresholds."""
        self.losses.add_checked(kl, self.weight)
        self._move()

    def _move(self) -> None:
        """Set the thresholds for the target, by the loss that is expected with them as given."""
        if self.target is None:
            return
        lost = self.prior * self.expected + sum(self.losses.kl) / SEEN_BY_BLOCKS
        expected = lost / (self.prior + sum(self.losses.weights))
        factor = (expected / self.target) ** (1 / LOSS_POWER)
        self.factor = min(max(factor, BOUNDS[0]), BOUNDS[1])


def divergence(true: Tensor, log: Tensor) -> Tensor:
    """KL divergences (...) of log probabilities (..., vocabulary) from the true ones."""
    return (true.exp() * (true - log)).sum(-1).clamp_min(0.0)
