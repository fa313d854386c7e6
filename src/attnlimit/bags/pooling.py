"""Mean, max and attention pooling of bags as scikit-learn estimators.

Noise is whitened after its covariance S is shrunk to (1-c) S + c mean(eigenvalues), with the c of
Ledoit and Wolf. Settings are chosen by the loss on bags left out, of log-odds at their best scale:
a ridge shrinks all log-odds, which changes no decision but would change the plain loss.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from attnlimit.bags.data import Stacked, check_instances, order_classes
from attnlimit.bags.instance_budget import ScoredBags
from attnlimit.checks import Array, count, one_of, positive, real_array
from attnlimit.errors import BadInput, MissingExtra, NotConverged
from attnlimit.sparse.training import LinearReadout, fit_readout, query_steps
from attnlimit.threads import small_matrices

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.covariance import ledoit_wolf_shrinkage, shrunk_covariance
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError:
    raise MissingExtra(
        "the poolings are scikit-learn estimators; install it with: pip install 'attnlimit[bags]'"
    ) from None

SMALLEST = 1e-10
"""Directions with less of the variance than this are not there."""


@dataclass(frozen=True, eq=False)
class Whitening:
    """Coordinates (x - centre) @ matrix, in which noise has about identity covariance."""

    centre: Array
    matrix: Array
    shrinkage: float

    def __call__(self, instances: Array) -> Array:
        """Return instances (M, d) in these coordinates."""
        return (instances - self.centre) @ self.matrix


def whitening(instances: Array, noise: Array, *, shrinkage: float | None = None) -> Whitening:
    """Coordinates that make `noise` (m, d) white; `instances` (M, d) are all there are.

    `shrinkage` is between 0 and 1; by default Ledoit and Wolf's.
    """
    if len(noise) < 2:
        raise BadInput(
            f"noise must have at least 2 instances to be whitened, got {len(noise)} "
            "(1 sample in the negative class); give more bags."
        )
    centre = noise.mean(axis=0)
    scale = instances.std(axis=0)
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    basis = _span((instances - centre) * inverse)
    seen = ((noise - centre) * inverse) @ basis
    covariance = seen.T @ seen / len(seen)
    if shrinkage is None:  # rounding can leave it just below zero
        chosen = float(np.clip(ledoit_wolf_shrinkage(seen, assume_centered=True), 0, 1))
    else:
        chosen = shrinkage
    shrunk, vectors = np.linalg.eigh(shrunk_covariance(covariance, chosen))
    keep = np.flatnonzero(shrunk > SMALLEST * np.trace(covariance))[::-1]
    if keep.size == 0:
        raise BadInput(
            "all instances of the noise are alike, so they cannot be whitened; give others."
        )
    matrix = inverse[:, None] * (basis @ (vectors[:, keep] / np.sqrt(shrunk[keep])))
    return Whitening(centre, matrix, chosen)


def _span(rows: Array) -> Array:
    """Orthonormal basis (d, k) of what the rows span, all of space unless they are few."""
    size, dim = rows.shape
    if size >= dim:
        return np.eye(dim)
    values, vectors = np.linalg.eigh(rows @ rows.T)
    keep = values > SMALLEST * values.max()
    return rows.T @ (vectors[:, keep] / np.sqrt(values[keep]))


FOLDS = 5
SIZES = np.geomspace(0.1, 8.0, 30)
"""Root mean squares that log-odds are scaled to; the last keeps separable bags comparable."""

Option = float | Sequence[float]
"""One value, or several to choose from."""

Index = NDArray[np.int64]
Trained = Callable[[Index], Array]
"""From places of bags to their log-odds."""


def best_settings(
    labels: Array,
    options: Mapping[str, Option],
    train: Callable[[Index], Callable[..., Trained]],
) -> dict[str, float]:
    """Settings of the least logistic loss on bags left out; without choice, those that are given.

    `train(places)` takes what does not depend on the settings from the bags at these places, and
    returns a function from settings to a trained classifier. With one bag in a class there is
    nothing to leave out, and the middle of the values is taken.
    """
    values = {name: [positive(v, name) for v in np.ravel(given)] for name, given in options.items()}
    if not all(values.values()):
        raise BadInput(f"{' or '.join(values)} is empty; give at least one value.")
    smallest = int(min((labels > 0).sum(), (labels < 0).sum()))
    if all(len(each) == 1 for each in values.values()) or smallest < 2:
        return {name: each[len(each) // 2] for name, each in values.items()}
    settings = [dict(zip(values, each, strict=True)) for each in product(*values.values())]
    odds = np.empty((len(settings), len(labels)))
    for rest, left_out in _folds(labels, min(FOLDS, smallest)):
        fit = train(rest)
        for place, setting in enumerate(settings):
            try:
                odds[place, left_out] = fit(**setting)(left_out)
            except NotConverged:
                odds[place, left_out] = np.nan
    return settings[int(np.argmin([_loss(row, labels) for row in odds]))]


def _folds(labels: Array, many: int) -> list[tuple[Index, Index]]:
    """Folds that each hold both classes, always the same ones."""
    order = np.concatenate([np.flatnonzero(labels > 0), np.flatnonzero(labels < 0)])
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % many
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(many)]


def _loss(odds: Array, labels: Array) -> float:
    """Logistic loss of log-odds at the best of all scales; endless where some are not known."""
    size = float(np.sqrt(np.mean(odds**2)))
    if not size > 0:
        return np.inf if np.isnan(size) else float(np.log(2))
    margins = SIZES[:, None] / size * (labels * odds)
    return float(np.logaddexp(0, -margins).mean(axis=1).min())


class BagClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of bags in two classes.

    Bags are a list of arrays (instances, features), or one array (bags, instances, features). A
    table (bags, features) is read as bags of one instance.
    """

    classes_: NDArray[Any]
    n_features_in_: int
    sign_: float
    shrinkage: float | None
    whitening_: Whitening

    @abstractmethod
    def _train(self, bags: Stacked, labels: Array) -> None:
        """Learn from bags and labels -1 or +1."""

    @abstractmethod
    def _decide(self, bags: Stacked) -> Array:
        """One number for each bag; above zero is the second class."""

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Train on bags X and one label for each, of two values."""
        if y is None:
            raise BadInput(
                f"{type(self).__name__} requires y to be passed, but the target y is None: give "
                "one label a bag."
            )
        bags = self._stack(X, fitting=True)
        marks = column_or_1d(y, warn=True)
        check_classification_targets(marks)
        if len(marks) != len(bags):
            raise BadInput(f"there are {len(bags)} bags but {len(marks)} labels; give one a bag.")
        self.classes_, which = np.unique(marks, return_inverse=True)
        if len(self.classes_) != 2:
            some, many = ", ".join(map(repr, self.classes_[:5].tolist())), len(self.classes_)
            raise BadInput(
                "Only binary classification is supported: the labels must have two values, but "
                f"there {'is 1 class' if many == 1 else f'are {many} classes'}: {some}."
            )
        # the noise is whitened by the negative class, whichever of the two labels that is
        second = order_classes(self.classes_.tolist())[1] == self.classes_[1]
        self.sign_ = 1.0 if second else -1.0
        with small_matrices(bags.instances.size):
            self._train(bags, self.sign_ * np.where(which > 0, 1.0, -1.0))
        return self

    def decision_function(self, X: Any) -> Array:
        """Log-odds of the second class, for each bag."""
        check_is_fitted(self)
        bags = self._stack(X)
        with small_matrices(bags.instances.size):
            return self.sign_ * self._decide(bags)

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of both classes, (bags, 2)."""
        odds = self.decision_function(X)
        return np.stack([expit(-odds), expit(odds)], axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """The likelier class of each bag."""
        second = self.decision_function(X) > 0
        return np.asarray(self.classes_[second.astype(int)])

    def _whiten(self, bags: Stacked, labels: Array) -> Stacked:
        """Find coordinates in which the instances of the first class, the noise, are white."""
        noise = bags.instances[bags.spread(labels) < 0]
        self.whitening_ = whitening(bags.instances, noise, shrinkage=self.shrinkage)
        return self._white(bags)

    def _white(self, bags: Stacked) -> Stacked:
        return replace(bags, instances=self.whitening_(bags.instances))

    def _stack(self, X: Any, fitting: bool = False) -> Stacked:
        listed = isinstance(X, (list, tuple)) and len(X) > 0 and all(np.ndim(bag) == 2 for bag in X)
        if listed or getattr(X, "ndim", 2) == 3:
            return self._stack_list([real_array(bag, "a bag") for bag in X], fitting)
        if isinstance(X, str) or not (hasattr(X, "__len__") or hasattr(X, "__array__")):
            raise BadInput(
                f"bags must be arrays (instances, features) of numbers, got {type(X).__name__}."
            )
        table = validate_data(self, X, reset=fitting, dtype=np.float64)
        return self._stack_list(list(table[:, None, :]), fitting)

    def _stack_list(self, bags: list[Array], fitting: bool) -> Stacked:
        check_instances(bags)
        dim = bags[0].shape[1]
        if fitting:
            self.n_features_in_ = dim
        elif dim != self.n_features_in_:
            raise BadInput(
                f"X has {dim} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        return Stacked.of(bags)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.three_d_array = True
        return tags


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


class MeanPooling(_OneFeature):
    """Logistic regression on the mean of a bag's whitened instances.

    Parameters
    ----------
    ridge : float or sequence of float
        Ridge on the readout, in whitened coordinates; of several, cross-validation picks one.
    shrinkage : float, optional
        How far the noise's covariance is shrunk, 0 to 1; Ledoit and Wolf's by default.

    Examples
    --------
    >>> from attnlimit.bags import MeanPooling
    >>> from attnlimit.sparse import SparseTask
    >>> X, y = SparseTask(5, 2, 6.0).sample(100, dim=4, seed=0)
    >>> bool(MeanPooling().fit(X, y).score(X, y) > 0.8)
    True
    """

    def __init__(self, ridge: Option = 0.1, *, shrinkage: float | None = None) -> None:
        self.ridge = ridge
        self.shrinkage = shrinkage

    def _train(self, bags: Stacked, labels: Array) -> None:
        self._whiten(bags, labels)
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


QUERY_RIDGE = 0.1
"""Ridge on the query, as a part of the readout's."""


@dataclass(frozen=True, eq=False)
class TrainedAttention:
    """Attention pooling with a trained query and readout."""

    query: Array
    readout: LinearReadout

    def log_odds(self, white: Stacked) -> Array:
        """Log-odds of the second class for whitened bags."""
        return self.readout(white.attended(white.instances @ self.query))


def train_jointly(
    bags: Stacked, labels: Array, start: Array, *, ridge: float = 1e-2, steps: int = 2000
) -> TrainedAttention:
    """Minimise the logistic loss over (q, w, b) at once, from the query `start` and w = 0.

    `ridge` acts on w and, ten times weaker, on q. The problem is not convex: what is found
    depends on the start.
    """
    ridge, steps = positive(ridge, "ridge"), count(steps, "steps")
    X, y, n = bags.instances, labels.astype(float), len(bags)
    dim = X.shape[1]
    ridges = np.concatenate([np.full(dim, QUERY_RIDGE * ridge), np.full(dim, ridge), [0.0]])

    def forward(x: Array) -> tuple[Array, Array, Array]:
        p, values = bags.softmax(X @ x[:dim]), X @ x[dim:-1]
        return p, values, bags.sums(p * values) + x[-1]

    def objective(x: Array) -> tuple[float, Array]:
        p, values, z = forward(x)
        slope = -y * expit(-y * z) / n
        pull = p * bags.spread(slope)
        q_slope = X.T @ (pull * (values - bags.spread(z - x[-1])))
        slopes = np.concatenate([q_slope, X.T @ pull, [slope.sum()]])
        loss = float(np.logaddexp(0, -y * z).mean() + 0.5 * ridges @ x**2)
        return loss, slopes + ridges * x

    first = np.concatenate([start, np.zeros(dim + 1)])
    options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-10, "gtol": 1e-6}
    minimum = minimize(objective, first, jac=True, method="L-BFGS-B", options=options)
    if minimum.nit >= steps:
        raise NotConverged(
            f"joint training did not settle in {steps} steps; raise ridge or steps.",
            reached=float(np.abs(minimum.jac).max()),
        )
    z = forward(minimum.x)[2]
    loss, error = float(np.logaddexp(0, -y * z).mean()), float(np.mean(y * z <= 0))
    readout = LinearReadout(minimum.x[dim:-1], float(minimum.x[-1]), loss, error, int(minimum.nit))
    return TrainedAttention(minimum.x[:dim], readout)


TRAINING = ("two-step", "joint")
SHARPNESS = (0.25, 0.5, 1.0, 2.0, 4.0)


class AttentionPooling(BagClassifier):
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
    shrinkage : float, optional
        How far the noise's covariance is shrunk, 0 to 1; Ledoit and Wolf's by default.

    Examples
    --------
    >>> from attnlimit.bags import AttentionPooling
    >>> from attnlimit.sparse import SparseTask
    >>> X, y = SparseTask(10, 1, 6.0).sample(200, dim=4, seed=0)
    >>> bool(AttentionPooling().fit(X, y).score(X, y) > 0.8)
    True
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
        shrinkage: float | None = None,
    ) -> None:
        self.training = training
        self.ridge = ridge
        self.sharpness = sharpness
        self.shrinkage = shrinkage

    def _train(self, bags: Stacked, labels: Array) -> None:
        one_of(self.training, TRAINING, "training")
        white = self._whiten(bags, labels)
        options = {"ridge": self.ridge, "sharpness": self.sharpness}

        def part(places: Index) -> Callable[..., Trained]:
            fit = self._fits(white.subset(places), labels[places])
            return lambda **setting: lambda others: fit(**setting).log_odds(white.subset(others))

        chosen = best_settings(labels, options, part)
        self.ridge_, self.sharpness_ = chosen["ridge"], chosen["sharpness"]
        self.trained_ = self._fits(white, labels)(**chosen)

    def _fits(self, white: Stacked, labels: Array) -> Callable[..., TrainedAttention]:
        """Take the gradient steps; what is left to do depends on ridge and sharpness."""
        share = float(np.mean(labels > 0))
        # the bias that is right without a signal, so that labels alone do not pull on the query
        lr_b = 4.0 if share == 0.5 else float(logit(share)) / (share - 0.5)
        steps = query_steps(white.blocks(labels), "logistic", 1.0, lr_b)
        size = float(np.linalg.norm(steps.query))
        direction = steps.query / size if size > 0 else steps.query

        def fit(ridge: float, sharpness: float) -> TrainedAttention:
            query = sharpness * direction
            if self.training == "joint":
                return train_jointly(white, labels, query, ridge=ridge)
            features = white.attended(white.instances @ query)
            return TrainedAttention(query, fit_readout(features, labels, ridge=ridge))

        return fit

    def _decide(self, bags: Stacked) -> Array:
        return self.trained_.log_odds(self._white(bags))

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
