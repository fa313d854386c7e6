"""Measured loss while decoding, and thresholds that keep it at a target.

Every so-many-th token is also read densely on the same cache, and the KL divergence of its next
token is measured. A check is unbiased; it is also noisy, because tokens whose next token is sure
lose nothing. The loss is therefore estimated as a ratio: losses of checked tokens over their
uncertainties 1 - sum p^2, times the mean uncertainty of all tokens, which is known.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

SHARE = 0.05
"""Share of the time that checks may take."""
FIRST = 3
"""Checks before thresholds move."""
GAIN, LARGEST_STEP = 1.0, 0.7
"""Steps of log c for a relative excess of the loss, with the number of checks; and the largest."""
BOUNDS = 1 / 16, 16.0
"""Bounds of the factor on the plan's thresholds."""


@dataclass
class Losses:
    """Losses of checked tokens, and uncertainties of all."""

    kl: list[float] = field(default_factory=list)
    uncertain: list[float] = field(default_factory=list)  # of checked tokens
    total: float = 0.0  # uncertainty of all tokens
    tokens: int = 0
    stored: float = 0.0  # predicted loss of the cache's bits and evictions, which checks do not see

    def add_token(self, uncertainty: Tensor) -> None:
        """Count the tokens of a batch."""
        self.total += float(uncertainty.sum())
        self.tokens += len(uncertainty)

    def mean(self, last: int | None = None) -> float:
        """Loss of a token in nats, from the last checks."""
        kl, uncertain = (np.array(x[-last:] if last else x) for x in (self.kl, self.uncertain))
        if not len(kl):
            return float("nan")
        if not uncertain.sum() or not self.tokens:
            return float(kl.mean())
        return float(kl.sum() / uncertain.sum() * self.total / self.tokens)

    def stderr(self) -> float:
        """Standard error of the loss, that of a ratio."""
        kl, uncertain = np.array(self.kl), np.array(self.uncertain)
        if len(kl) < 2:
            return float("nan")
        if not uncertain.sum():
            return float(kl.std(ddof=1) / len(kl) ** 0.5)
        residual = kl - kl.sum() / uncertain.sum() * uncertain
        scale = self.total / self.tokens / uncertain.mean() if self.tokens else 1.0
        return float(scale * residual.std(ddof=1) / len(kl) ** 0.5)


class Controller:
    """Chooses which tokens are checked, and moves thresholds by what checks show."""

    def __init__(self, target: float | None, every: int | None) -> None:
        self.target, self.every = target, every
        self.factor = 1.0  # on every threshold
        self.losses = Losses()
        self.since = 0  # tokens since the last check
        self.seconds_each: list[float] = []  # of each check
        self.step_seconds = 0.0

    @property
    def active(self) -> bool:
        """Whether some tokens are checked."""
        return self.target is not None or self.every is not None

    def due(self) -> bool:
        """Whether the next token is to be checked."""
        self.since += 1
        if self.every is not None:
            return self.since >= self.every
        if self.target is None:
            return False
        done = len(self.seconds_each)
        if done < FIRST:
            return self.since > done
        spent = sum(self.seconds_each)
        mean = spent / done
        return spent + mean <= SHARE * (self.step_seconds + spent) + FIRST * mean

    def timed_check(self, run: Callable[[], Tensor]) -> Tensor:
        """Run a token densely, and count the time."""
        start = time.perf_counter()
        result = run()
        self.seconds_each.append(time.perf_counter() - start)
        self.since = 0
        return result

    def add(self, dense: Tensor | None, logits: Tensor, seconds: float) -> None:
        """Take a token's logits (B, vocabulary), with the dense model's if it was checked."""
        self.step_seconds += seconds
        log = torch.log_softmax(logits.float(), -1)
        if dense is None:
            self.losses.add_token(1 - log.exp().square().sum(-1))
            return
        true = torch.log_softmax(dense.float(), -1)
        uncertainty = 1 - true.exp().square().sum(-1)
        self.losses.add_token(uncertainty)
        kl = (true.exp() * (true - log)).sum(-1).clamp_min(0.0)
        self.losses.kl += kl.tolist()
        self.losses.uncertain += uncertainty.tolist()
        if self.target is not None and len(self.losses.kl) >= FIRST:
            self._move(kl, uncertainty)

    def _move(self, kl: Tensor, uncertainty: Tensor) -> None:
        """Raise thresholds where more is lost than the target, lower them where less is."""
        assert self.target is not None
        checks = len(self.losses.kl)
        expected = self.target * self.losses.tokens / max(self.losses.total, 1e-9)
        wanted = (expected * uncertainty).sum().clamp_min(1e-12)
        excess = float((kl.sum() - wanted) / (self.target * len(kl)))
        step = GAIN / math.sqrt(checks) * excess
        step = min(max(step, -LARGEST_STEP), LARGEST_STEP)
        self.factor = min(max(self.factor * math.exp(step), BOUNDS[0]), BOUNDS[1])
