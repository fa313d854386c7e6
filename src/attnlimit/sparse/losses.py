"""Convex losses, each with the proximal step that the asymptotics of training need.

A loss is used through its Moreau envelope e(z) = min_x loss(x; y) + (x - z)^2 / (2 gamma): its
minimiser eta is the prediction on a *training* sample whose leave-one-out prediction is z.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from attnlimit.checks import Array, positive
from attnlimit.errors import BadInput


class Loss(ABC):
    """A convex loss(z; y) of a prediction z and a label y in {-1, +1}."""

    name: str
    separates: bool = True
    """True if minimising it without a ridge drives separable data to the largest margin."""
    smooth: bool = False
    """True if the second derivative is continuous and known."""

    @abstractmethod
    def value(self, z: Array, y: Array) -> Array:
        """loss(z; y)."""

    def slope(self, z: Array, y: Array) -> Array:
        """Derivative in z; a constraint, which only the readout's limits are, has none."""
        raise BadInput(f"the loss {self.name!r} has no derivative; it exists only for the readout.")

    @abstractmethod
    def envelope_slopes(self, z: Array, gamma: Array, y: Array) -> tuple[Array, Array, Array]:
        """Return eta = prox, the envelope's derivative and its second derivative, in z."""

    def prox(self, z: Array, gamma: Array, y: Array) -> Array:
        """argmin_x loss(x; y) + (x - z)^2 / (2 gamma)."""
        return self.envelope_slopes(z, gamma, y)[0]

    @property
    def initial_pull(self) -> float:
        """c0 in -loss'(0; y) = c0 y."""
        ones = np.ones(1)
        up, down = -self.slope(0 * ones, ones)[0], self.slope(0 * ones, -ones)[0]
        if not (up > 0 and np.isclose(up, down)):
            raise BadInput(
                f"the loss {self.name!r} must have -loss'(0; y) = c0 y with c0 > 0, but it is "
                f"{up:.3g} at y = +1 and {-down:.3g} at y = -1."
            )
        return float(up)


@dataclass(frozen=True)
class SquareLoss(Loss):
    """(z - y)^2 / (2 width); at width 0 the constraint z = y, the interpolator of least norm."""

    name: str = "square"
    width: float = 1.0
    separates = False
    smooth = True

    def value(self, z: Array, y: Array) -> Array:
        return (z - y) ** 2 / (2 * self.width) if self.width else 0 * z

    def slope(self, z: Array, y: Array) -> Array:
        return (z - y) / self.width

    def envelope_slopes(self, z: Array, gamma: Array, y: Array) -> tuple[Array, Array, Array]:
        curvature = 1 / (self.width + gamma)
        eta = (self.width * z + gamma * y) * curvature
        return eta, (z - y) * curvature, curvature + 0 * z


@dataclass(frozen=True)
class LogisticLoss(Loss):
    """log(1 + e^{-yz})."""

    name: str = "logistic"
    smooth = True

    def value(self, z: Array, y: Array) -> Array:
        return np.logaddexp(0, -y * z)

    def slope(self, z: Array, y: Array) -> Array:
        return -y * expit(-y * z)

    def prox(self, z: Array, gamma: Array, y: Array) -> Array:
        """Root of t - gamma sigma(-t) = yz, by a Newton iteration that cannot overshoot.

        The left side is convex for t < 0 and concave for t > 0, and the sign of the root is that
        of yz + gamma/2. Starting between 0 and the root, Newton's method is then monotone.
        """
        margin = y * z
        half = np.log(0.5 * gamma) - margin
        # lower bound of Wright's omega: x <= omega(half) solves x + log x = half
        omega = np.where(half > 1, half - np.log(np.maximum(half, 1)), 0.0)
        root_is_positive = margin + 0.5 * gamma > 0
        t = np.where(root_is_positive, np.maximum(0, margin + omega), np.minimum(0, margin + gamma))
        for _ in range(60):
            tail = expit(-t)
            step = (t - gamma * tail - margin) / (1 + gamma * tail * (1 - tail))
            t = t - step
            if np.max(np.abs(step) / (1 + np.abs(t))) < 1e-9:  # quadratic: the error is squared
                break
        return y * t

    def envelope_slopes(self, z: Array, gamma: Array, y: Array) -> tuple[Array, Array, Array]:
        """From eta: loss' and loss'' / (1 + gamma loss'')."""
        eta = self.prox(z, gamma, y)
        tail = expit(-y * eta)
        curvature = tail * (1 - tail)
        return eta, -y * tail, curvature / (1 + gamma * curvature)


@dataclass(frozen=True)
class SmoothedHinge(Loss):
    """The hinge (1 - yz)_+, made quadratic over a `width` below the margin."""

    width: float = 0.5
    name: str = "hinge"

    def __post_init__(self) -> None:
        positive(self.width, "width")

    def value(self, z: Array, y: Array) -> Array:
        gap = 1 - y * z
        bend = np.maximum(gap, 0) ** 2 / (2 * self.width)
        return np.where(gap < self.width, bend, gap - self.width / 2)

    def slope(self, z: Array, y: Array) -> Array:
        return -y * np.clip((1 - y * z) / self.width, 0, 1)

    def envelope_slopes(self, z: Array, gamma: Array, y: Array) -> tuple[Array, Array, Array]:
        """Closed forms: the envelope is a hinge again, smoothed over width + gamma."""
        pull = (1 - y * z) / (self.width + gamma)
        inside, slope = (pull > 0) & (pull < 1), -y * np.clip(pull, 0, 1)
        return z - gamma * slope, slope, inside / (self.width + gamma)


@dataclass(frozen=True)
class HardMargin(Loss):
    """Zero where yz >= 1 and infinite below: the max-margin classifier."""

    name: str = "max-margin"

    def value(self, z: Array, y: Array) -> Array:
        """loss(z; y), zero on its domain up to rounding."""
        return np.where(y * z >= 1 - 1e-9, 0.0, np.inf)

    def envelope_slopes(self, z: Array, gamma: Array, y: Array) -> tuple[Array, Array, Array]:
        """Of (1 - yz)_+^2 / (2 gamma)."""
        gap = np.maximum(1 - y * z, 0)
        return z + y * gap, -y * gap / gamma, (gap > 0) / gamma


BY_NAME: dict[str, Loss] = {
    "logistic": LogisticLoss(),
    "square": SquareLoss(),
    "hinge": SmoothedHinge(),
}
LossLike = str | Loss


def as_loss(loss: LossLike) -> Loss:
    """Return a Loss from its name."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss in BY_NAME:
        return BY_NAME[loss]
    raise BadInput(f"loss must be {', '.join(BY_NAME)}, or a sparse.Loss; got {loss!r}.")
