"""Classify bags by the mean of their instances, or by the largest value of each feature."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from attnlimit.checks import Array
from attnlimit.sparse.pooling.choose import Index, Option, Trained, best_settings
from attnlimit.sparse.pooling.classifier import BagClassifier, WhiteningClassifier
from attnlimit.sparse.pooling.scored import ScoredBags
from attnlimit.sparse.train.fit import LinearReadout, fit_readout
from attnlimit.sparse.train.stacked import Stacked


class _OneFeature(BagClassifier):
    """Logistic regression on one feature vector of each bag, which needs no training."""

    ridge: Option
    readout_: LinearReadout
    ridge_: float

    @abstractmethod
    def _features(self, bags: Stacked) -> Array:
        """(bags, features)."""

    def _train(self, bags: Stacked, labels: Array) -> None:
        features = self._features(bags)

        def readout(places: Index, ridge: float) -> Trained:
            fitted = fit_readout(features[places], labels[places], ridge=ridge)
            return lambda others: fitted(features[others])

        chosen = best_settings(labels, {"ridge": self.ridge}, lambda at: partial(readout, at))
        self.ridge_ = chosen["ridge"]
        self.readout_ = fit_readout(features, labels, ridge=self.ridge_)

    def _decide(self, bags: Stacked) -> Array:
        return self.readout_(self._features(bags))


class MeanPooling(_OneFeature, WhiteningClassifier):
    """Logistic regression on the mean of a bag's whitened instances.

    Parameters
    ----------
    ridge : float or sequence of float
        Ridge on the readout, in whitened coordinates; of several, cross-validation picks one.
    shrinkage : float, optional
        How far the noise's covariance is shrunk, 0 to 1; Ledoit and Wolf's by default.
    max_dim : int, optional
        Keep at most so many directions, those of most noise.
    """

    def __init__(
        self, ridge: Option = 0.1, *, shrinkage: float | None = None, max_dim: int | None = None
    ) -> None:
        self.ridge = ridge
        self.shrinkage = shrinkage
        self.max_dim = max_dim

    def _train(self, bags: Stacked, labels: Array) -> None:
        self._find_whitening(bags, labels)
        super()._train(bags, labels)

    def _features(self, bags: Stacked) -> Array:
        return self._white(bags).mean()

    def scored(self, X: Any) -> ScoredBags:
        """Scores, all zero, and whitened features of the instances, and the readout."""
        check_is_fitted(self)
        white = self._white(self._stack(X))
        scores = white.split(np.zeros(len(white.instances)))
        return ScoredBags(scores, white.split(), self.readout_.weights, self.readout_.bias)


class MaxPooling(_OneFeature):
    """Logistic regression on the largest value of each feature in a bag, standardised.

    Parameters
    ----------
    ridge : float or sequence of float
        Ridge on the readout; of several, cross-validation picks one.
    """

    centre_: Array
    scale_: Array

    def __init__(self, ridge: Option = 0.1) -> None:
        self.ridge = ridge

    def _train(self, bags: Stacked, labels: Array) -> None:
        largest = bags.largest(bags.instances)
        scale = largest.std(axis=0)
        self.centre_, self.scale_ = largest.mean(axis=0), np.where(scale > 0, scale, 1.0)
        super()._train(bags, labels)

    def _features(self, bags: Stacked) -> Array:
        return (bags.largest(bags.instances) - self.centre_) / self.scale_
