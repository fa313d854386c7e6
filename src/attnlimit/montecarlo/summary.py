"""What do the draws say together? Averages with controls, standard errors, joint covariance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlimit.checks import Array
from attnlimit.montecarlo.sweep import Samples

DRAWS_PER_CONTROL = 5
FOLDS = 5
# Directions in which features are nearly the same carry noise, not information.
SMALLEST = 1e-3


@dataclass(frozen=True)
class Summary:
    """Averages over draws: value and joint covariance over n, and what the controls gained."""

    value: Array
    covariance: Array
    variance_reduction: Array

    @property
    def stderr(self) -> Array:
        """Standard errors."""
        return np.sqrt(np.diag(self.covariance))


def summarise(samples: Samples, *, control: bool = True) -> Summary:
    """Average the draws, less what controls of known mean explain.

    The coefficients for a draw are fitted on the other folds only, so that it is independent of
    them: the average has no bias, whatever the coefficients are, and the scatter of what is left
    is an honest standard error.
    """
    replicates, sizes = samples.values.shape
    left = samples.values.copy()
    folds = np.arange(replicates) % FOLDS
    affordable = replicates // DRAWS_PER_CONTROL - 1
    if control and affordable > 0:
        for k in range(sizes):
            for fold in range(FOLDS):
                inside = folds == fold
                left[inside, k] -= _explained(samples, k, ~inside, inside, affordable)
    value = left.mean(axis=0)
    residuals = left - value
    covariance = residuals.T @ residuals / (replicates * (replicates - 1))
    before, after = samples.values.var(axis=0, ddof=1), left.var(axis=0, ddof=1)
    reduction = np.divide(before, after, out=np.ones(sizes), where=after > 0)
    return Summary(value, covariance, reduction)


def _explained(samples: Samples, k: int, fitted: Array, applied: Array, affordable: int) -> Array:
    """What controls, with coefficients from the draws `fitted`, explain in the draws `applied`."""
    controls = _controls(samples, k, fitted)[:, :affordable]
    spread = controls[fitted].std(axis=0)
    controls = controls[:, spread > 0] / spread[spread > 0]
    design = controls[fitted] - controls[fitted].mean(axis=0)
    values = samples.values[fitted, k]
    slopes = np.linalg.lstsq(design, values - values.mean(), rcond=1e-8)[0]
    return np.asarray(controls[applied] @ slopes)


def _controls(samples: Samples, k: int, fitted: Array) -> Array:
    """Controls of mean zero for every draw, combined with coefficients from `fitted` ones."""
    columns = []
    if samples.gram is not None and samples.gram_mean is not None:
        gram, known = samples.gram[:, k], samples.gram_mean / samples.n[k]
        # The combination of features nearest to the mean output: least squares in expectation.
        unit = np.sqrt(np.maximum(np.diag(known), 1e-300))
        cross = gram[fitted, 0, 1:].mean(axis=0) / unit
        best = np.linalg.lstsq(known / np.outer(unit, unit), cross, rcond=SMALLEST)[0] / unit
        explained = np.einsum("j,rjk,k->r", best, gram[:, 1:, 1:], best)
        columns.append(explained[:, None] - best @ known @ best)
    if samples.zeros:
        columns.append(samples.zeros[k])
    if not columns:
        return np.zeros((len(samples.values), 0))
    return np.concatenate(columns, axis=1)
