"""What do the draws say together? Averages with controls, standard errors, joint covariance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlimit.checks import Array
from attnlimit.montecarlo.sweep import Samples

DRAWS_PER_CONTROL = 5


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
    """Average the draws, regressing out controls of known mean when there are enough draws.

    With controls c of mean zero the estimate is the intercept of the regression of the values on
    c. Its bias is of order one over the number of draws, of the order of its variance.
    """
    replicates, sizes = samples.values.shape
    residuals = np.empty_like(samples.values)
    value = np.empty(sizes)
    reduction = np.ones(sizes)
    for k in range(sizes):
        plain = samples.values[:, k]
        columns = _controls(samples, k) if control else np.zeros((replicates, 0))
        columns = columns[:, : max(0, replicates // DRAWS_PER_CONTROL - 1)]
        value[k], residuals[:, k] = _regress(plain, columns)
        left = residuals[:, k].var(ddof=1)
        if left > 0:
            reduction[k] = plain.var(ddof=1) / left
    covariance = residuals.T @ residuals / (replicates * (replicates - 1))
    return Summary(value, covariance, reduction)


def _controls(samples: Samples, k: int) -> Array:
    columns = []
    if samples.gram is not None and samples.gram_mean is not None:
        gram = samples.gram[:, k]
        known = samples.gram_mean
        # The combination of features nearest to the mean output: least squares in expectation.
        cross = gram[:, 0, 1:].mean(axis=0)
        best = np.linalg.lstsq(known / samples.n[k], cross, rcond=1e-10)[0]
        explained = np.einsum("j,rjk,k->r", best, gram[:, 1:, 1:], best)
        columns.append(explained[:, None] - best @ known @ best / samples.n[k])
    if samples.zeros:
        columns.append(samples.zeros[k])
    if not columns:
        return np.zeros((len(samples.values), 0))
    return np.concatenate(columns, axis=1)


def _regress(values: Array, controls: Array) -> tuple[float, Array]:
    """Intercept at controls = 0, and residuals scaled for the degrees of freedom they cost."""
    spread = controls.std(axis=0)
    controls = controls[:, spread > 0] / spread[spread > 0]
    count = controls.shape[1]
    if count == 0:
        mean = float(values.mean())
        return mean, values - mean
    centre = controls.mean(axis=0)
    slopes = np.linalg.lstsq(controls - centre, values - values.mean(), rcond=1e-10)[0]
    residuals = values - values.mean() - (controls - centre) @ slopes
    # The intercept also carries the error of the slopes, through the controls' own mean.
    leverage = (
        1
        + len(values)
        * centre
        @ np.linalg.pinv((controls - centre).T @ (controls - centre))
        @ centre
    )
    freedom = (len(values) - 1) / (len(values) - 1 - count)
    return float(values.mean() - centre @ slopes), residuals * np.sqrt(freedom * leverage)
