"""What do the draws say together? Averages with controls, standard errors, joint covariance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlimit.checks import Array
from attnlimit.montecarlo.sweep import Samples
from attnlimit.skewed import excess_kurtosis, skewness

DRAWS_PER_CONTROL = 5
FOLDS = 5
# Directions in which features, or controls, are nearly the same carry noise, not information.
SMALLEST = 1e-3
NEARLY_THE_SAME = 1e-2

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Summary:
    """Averages over draws: value and joint covariance over n, and what the controls gained."""

    value: Array
    covariance: Array
    variance_reduction: Array
    skewness: Array  # of what single draws answer for
    kurtosis: Array  # its excess over a normal law's

    @property
    def stderr(self) -> Array:
        """Standard errors."""
        return np.sqrt(np.diag(self.covariance))


def summarise(samples: Samples, *, control: bool = True) -> Summary:
    """Average the draws, less what controls of known mean explain.

    The weights for a draw are fitted on the other folds only, so that it is independent of them:
    the average has no bias, whatever the weights are. Draws of different folds are then not
    independent of each other, as each is in the fit of the other. So each draw answers for its
    own value and for half of what it did to those of others, and the standard errors are the
    scatter of that.
    """
    replicates, sizes = samples.values.shape
    left = samples.values.copy()
    moved = np.zeros_like(left)
    affordable = replicates // DRAWS_PER_CONTROL - 1
    if control and affordable > 0 and (samples.zeros or samples.gram is not None):
        number = np.arange(replicates) % FOLDS
        for k in range(sizes):
            for fold in range(FOLDS):
                inside = number == fold
                columns, weights, shares = _fit(samples, k, ~inside, affordable)
                left[inside, k] -= columns[inside] @ weights
                moved[:, k] -= shares @ columns[inside].sum(axis=0)
    answered = left + moved / 2
    residuals = answered - answered.mean(axis=0)
    covariance = residuals.T @ residuals / (replicates * (replicates - 1))
    before, after = samples.values.var(axis=0, ddof=1), np.diag(covariance) * replicates
    reduction = np.divide(before, after, out=np.ones(sizes), where=after > 0)
    shape = skewness(answered), excess_kurtosis(answered)
    return Summary(left.mean(axis=0), covariance, reduction, *shape)


def _fit(samples: Samples, k: int, fitted: Mask, affordable: int) -> tuple[Array, Array, Array]:
    """Regress the values at the k-th n on the controls, over the draws `fitted`.

    Columns of controls, their weights, and what each fitted draw has added to the weights.
    """
    projected, slopes, slope_shares = _projected(samples, k, fitted)
    controls = np.concatenate([projected, samples.zeros[k]] if samples.zeros else [projected], 1)
    controls = controls[:, :affordable]
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
    if projected.shape[1] and spread[0] > 0:
        # The first control moves with its own weights, which these draws also gave.
        slopes = slopes * weights[0] / spread[0]
        weights = np.concatenate([weights, np.zeros(slopes.shape[1])])
        controls = np.concatenate([controls, slopes], axis=1)
        shares = np.concatenate([shares, slope_shares], axis=1)
    return controls, weights, shares


def _projected(samples: Samples, k: int, fitted: Mask) -> tuple[Array, Array, Array]:
    """The squared length of the features' combination nearest to the mean output, less its mean.

    Least squares over the draws `fitted`. Also its derivative in the combination, and what each
    draw has added to the combination.
    """
    if samples.gram is None or samples.gram_mean is None:
        nothing = np.zeros((len(fitted), 0))
        return nothing, nothing, nothing
    known = samples.gram_mean / samples.n[k]
    unit = np.sqrt(np.maximum(np.diag(known), 1e-300))
    gram = samples.gram[:, k, 1:, 1:] / np.outer(unit, unit)
    cross = samples.gram[:, k, 0, 1:] / unit
    values, vectors = np.linalg.eigh(gram[fitted].mean(axis=0))
    kept = values > SMALLEST * values.max()
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    best = inverse @ cross[fitted].mean(axis=0)
    surplus = gram @ best - (known / np.outer(unit, unit)) @ best
    shares = np.zeros_like(cross)
    shares[fitted] = (cross[fitted] - gram[fitted] @ best) @ inverse / fitted.sum()
    return (surplus @ best)[:, None], 2 * surplus, shares
