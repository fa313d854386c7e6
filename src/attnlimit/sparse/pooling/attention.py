"""Classify bags by attention: which instances tell, learned from the bags' labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import logit
from sklearn.utils.validation import check_is_fitted

from attnlimit.checks import Array, one_of
from attnlimit.sparse.pooling.choose import Index, Option, Trained, best_settings
from attnlimit.sparse.pooling.classifier import WhiteningClassifier
from attnlimit.sparse.pooling.scored import ScoredBags
from attnlimit.sparse.train.descent import TrainedAttention, query_steps
from attnlimit.sparse.train.fit import fit_readout
from attnlimit.sparse.train.joint import train_jointly
from attnlimit.sparse.train.stacked import Stacked

TRAINING = ("two-step", "joint")
SHARPNESS = (0.25, 0.5, 1.0, 2.0, 4.0)


class AttentionPooling(WhiteningClassifier):
    """Logistic regression on instances averaged with the softmax of their scores <q, x>.

    Instances are whitened by those of the first class. The query's direction comes from two
    gradient steps (docs/theory/sparse-alignment.md), its length is the sharpness: the standard
    deviation of the scores of noise.

    Parameters
    ----------
    training : str
        "two-step", then the readout is fitted with the query fixed, as in the theory; or "joint",
        then query and readout are trained together from there.
    ridge : float or sequence of float
        Ridge on the readout, in whitened coordinates; of several, cross-validation picks one.
    sharpness : float or sequence of float
        Length of the query (at the start, if training is joint); likewise.
    lr_w : float
        Size of the first gradient step.
    shrinkage : float, optional
        How far the noise's covariance is shrunk, 0 to 1; Ledoit and Wolf's by default.
    max_dim : int, optional
        Keep at most so many directions, those of most noise.
    """

    trained_: TrainedAttention
    ridge_: float
    sharpness_: float

    def __init__(
        self,
        training: str = "two-step",
        ridge: Option = 0.1,
        sharpness: Option = SHARPNESS,
        *,
        lr_w: float = 1.0,
        shrinkage: float | None = None,
        max_dim: int | None = None,
    ) -> None:
        self.training = training
        self.ridge = ridge
        self.sharpness = sharpness
        self.lr_w = lr_w
        self.shrinkage = shrinkage
        self.max_dim = max_dim

    def _train(self, bags: Stacked, labels: Array) -> None:
        one_of(self.training, TRAINING, "training")
        self._find_whitening(bags, labels)
        white = self._white(bags)
        options = {"ridge": self.ridge, "sharpness": self.sharpness}

        def part(places: Index) -> Callable[..., Trained]:
            fit = self._fits(white.subset(places), labels[places])
            return lambda **setting: lambda others: log_odds(fit(**setting), white.subset(others))

        chosen = best_settings(labels, options, part)
        self.ridge_, self.sharpness_ = chosen["ridge"], chosen["sharpness"]
        self.trained_ = self._fits(white, labels)(**chosen)

    def _fits(self, white: Stacked, labels: Array) -> Callable[..., TrainedAttention]:
        """Take the gradient steps; what is left to do depends on ridge and sharpness."""
        share = float(np.mean(labels > 0))
        # the bias that is right without a signal, so that labels alone do not pull on the query
        lr_b = 4.0 if share == 0.5 else float(logit(share)) / (share - 0.5)
        steps = query_steps(white.blocks(labels), "logistic", self.lr_w, lr_b)
        size = float(np.linalg.norm(steps.query))
        direction = steps.query / size if size > 0 else steps.query

        def fit(ridge: float, sharpness: float) -> TrainedAttention:
            query = sharpness * direction
            if self.training == "joint":
                return train_jointly(white, labels, query, ridge=ridge)
            features = white.attended(white.instances @ query)
            return TrainedAttention(query, 1.0, fit_readout(features, labels, ridge=ridge))

        return fit

    def _decide(self, bags: Stacked) -> Array:
        return log_odds(self.trained_, self._white(bags))

    def attention_weights(self, X: Any) -> list[Array]:
        """Weight of every instance of each bag; the largest are the most telling instances."""
        check_is_fitted(self)
        white = self._white(self._stack(X))
        return white.split(white.softmax(white.instances @ self.trained_.query))

    def scored(self, X: Any) -> ScoredBags:
        """Scores and whitened features of the instances of each bag, and the readout."""
        check_is_fitted(self)
        white, trained = self._white(self._stack(X)), self.trained_
        scores = white.split(white.instances @ trained.query)
        return ScoredBags(scores, white.split(), trained.readout.weights, trained.readout.bias)


def log_odds(trained: TrainedAttention, white: Stacked) -> Array:
    """Log-odds of the second class for whitened bags."""
    return trained.readout(white.attended(trained.beta * (white.instances @ trained.query)))
