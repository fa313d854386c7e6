"""Averages over draws with control variates, their standard errors and joint covariance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import t as student

from attnlimit.checks import Array
from attnlimit.curve import NORMS
from attnlimit.errors import NotConverged
from attnlimit.intervals import excess_kurtosis, skewness
from attnlimit.simulate.sweep import Samples

DRAWS_PER_CONTROL = 5
FOLDS = 5
NEARLY_THE_SAME = 1e-2
"""Directions in which controls are nearly the same carry noise, not information."""
MOST_ERRORS = 5.0
CHECKED_DRAWS = 30
"""Draws from which on a control's sample mean is compared with its known mean."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Summary:
    """Averages over draws: value and joint covariance over n, and the gain by the controls."""

    value: Array
    covariance: Array
    variance_reduction: Array
    skewness: Array  # of single draws
    kurtosis: Array  # its excess over a normal law's

    @property
    def stderr(self) -> Array:
        """Standard errors."""
        return np.sqrt(np.diag(self.covariance))


def summarise(samples: Samples, *, control: bool = True) -> Summary:
    """Average the draws, less what controls of known mean explain.

    The weights for a draw are fitted on the other folds only, so that it is independent of them:
    the average has no bias, whatever the weights are. Draws of different folds are then not
    independent of each other, as each is in the fit of the other. So each draw is charged with its
    own value and half of what it did to those of others, and the standard errors are the scatter
    of that.

    Raises
    ------
    NotConverged
        For a mean square below zero, or a control whose sample mean is more than five of its
        standard errors from its known mean.
    """
    replicates, sizes = samples.values.shape
    left = samples.values.copy()
    moved = np.zeros_like(left)
    affordable = replicates // DRAWS_PER_CONTROL - 1
    if control and affordable > 0 and samples.controls:
        check_controls(samples)
        number = np.arange(replicates) % FOLDS
        for k in range(sizes):
            for fold in range(FOLDS):
                inside = number == fold
                columns, weights, shares = _fit(samples, k, ~inside, affordable)
                left[inside, k] -= columns[inside] @ weights
                moved[:, k] -= shares @ columns[inside].sum(axis=0)
    charged = left + moved / 2
    residuals = charged - charged.mean(axis=0)
    covariance = residuals.T @ residuals / (replicates * (replicates - 1))
    before, after = samples.values.var(axis=0, ddof=1), np.diag(covariance) * replicates
    reduction = np.divide(before, after, out=np.ones(sizes), where=after > 0)
    value = left.mean(axis=0)
    if (value < 0).any() or not np.isfinite(value).all():
        worst = int(np.argmin(value))
        kind = "mean norm" if samples.statistic in NORMS else "mean square"
        raise NotConverged(
            f"the measured {kind} at n = {samples.n[worst]} is {value[worst]:.3g}; "
            "draw more replicates, with queries='all'.",
            reached=float(value[worst]),
        )
    shape = skewness(charged), excess_kurtosis(charged)
    return Summary(value, covariance, reduction, *shape)


def check_controls(samples: Samples) -> None:
    """Raise where a control's sample mean is beyond five errors from zero, its known mean."""
    draws = len(samples.values)
    if draws < CHECKED_DRAWS:
        return
    most = float(student.isf(ndtr(-MOST_ERRORS), draws - 1))
    for n, columns in zip(samples.n, samples.controls, strict=True):
        error = columns.std(axis=0, ddof=1) / np.sqrt(draws)
        far = np.abs(columns.mean(axis=0)) > most * error + 1e-12 * np.abs(columns).max(initial=0.0)
        if far.any():
            off = float(np.abs(columns.mean(axis=0))[far].max())
            raise NotConverged(
                f"a control variate of the {samples.statistic} at n = {n} averages {off:.3g} over "
                f"{draws} draws instead of 0; use control=False.",
                reached=off,
            )


def _fit(samples: Samples, k: int, fitted: Mask, affordable: int) -> tuple[Array, Array, Array]:
    """Regress the values at the k-th n on the controls, over the draws `fitted`.

    Columns of controls, their weights, and what each fitted draw has added to the weights.
    """
    controls = samples.controls[k][:, :affordable]
    spread = controls[fitted].std(axis=0)
    controls = controls[:, spread > 0] / spread[spread > 0]
    design = controls[fitted] - controls[fitted].mean(axis=0)
    values = samples.values[fitted, k] - samples.values[fitted, k].mean()
    left, sizes, right = np.linalg.svd(design, full_matrices=False)
    kept = sizes > NEARLY_THE_SAME * sizes.max(initial=0.0)
    inverse = right[kept].T / sizes[kept]
    weights = inverse @ (left[:, kept].T @ values)
    leverage = (left[:, kept] ** 2).sum(axis=1) + 1 / len(design)
    residuals = (values - design @ weights) / np.maximum(1 - leverage, 1e-3)
    if (residuals**2).sum() >= (values**2).sum():
        return controls[:, :0], weights[:0], controls[:, :0]
    shares = np.zeros_like(controls)
    shares[fitted] = (left[:, kept] * residuals[:, None]) @ inverse.T
    return controls, weights, shares
