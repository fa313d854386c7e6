"""What do all poolings of bags share? Bags and labels checked, then a logistic readout."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from attnlimit.checks import Array, real_array
from attnlimit.errors import BadInput, MissingExtra
from attnlimit.sparse.train.stacked import Stacked
from attnlimit.sparse.train.whiten import Whitening, whitening

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        check_is_fitted,
        column_or_1d,
        validate_data,
    )
except ImportError:
    raise MissingExtra(
        "the poolings are scikit-learn estimators; install it with: pip install 'attnlimit[bags]'"
    ) from None


class BagClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of bags in two classes.

    Bags are a list of arrays (instances, features), or one array (bags, instances, features). A
    table (bags, features) is read as bags of one instance.
    """

    classes_: NDArray[Any]
    n_features_in_: int

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
            some = ", ".join(repr(mark) for mark in self.classes_[:5].tolist())
            raise BadInput(
                "Only binary classification is supported: the labels must have two values, but "
                f"there {_classes(len(self.classes_))}: {some}."
            )
        self._train(bags, np.where(which > 0, 1.0, -1.0))
        return self

    def decision_function(self, X: Any) -> Array:
        """Log-odds of the second class, for each bag."""
        check_is_fitted(self)
        return self._decide(self._stack(X))

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of both classes, (bags, 2)."""
        odds = self.decision_function(X)
        return np.stack([expit(-odds), expit(odds)], axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """The likelier class of each bag."""
        second = self.decision_function(X) > 0
        return np.asarray(self.classes_[second.astype(int)])

    def _stack(self, X: Any, fitting: bool = False) -> Stacked:
        if _listed(X) or getattr(X, "ndim", 2) == 3:
            return self._stack_list([real_array(bag, "a bag") for bag in X], fitting)
        table = validate_data(self, X, reset=fitting, dtype=np.float64)
        return self._stack_list(list(table[:, None, :]), fitting)

    def _stack_list(self, bags: list[Array], fitting: bool) -> Stacked:
        dims = {bag.shape[1] for bag in bags}
        if len(dims) > 1:
            raise BadInput(f"all instances must have the same features, got {sorted(dims)}.")
        if not all(map(len, bags)):
            raise BadInput("a bag is empty; remove it or give it at least one instance.")
        dim = dims.pop()
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


class WhiteningClassifier(BagClassifier):
    """A classifier that looks at instances in coordinates where those of one class are white."""

    shrinkage: float | None
    max_dim: int | None
    whitening_: Whitening

    def _find_whitening(self, bags: Stacked, labels: Array) -> None:
        """Find the coordinates from the instances of the first class, which are the noise."""
        noise = bags.instances[bags.spread(labels) < 0]
        self.whitening_ = whitening(
            bags.instances, noise, shrinkage=self.shrinkage, max_dim=self.max_dim
        )

    def _white(self, bags: Stacked) -> Stacked:
        return bags.with_instances(self.whitening_(bags.instances))


def _listed(X: Any) -> bool:
    """Whether these are arrays (instances, features), and not the rows of one table."""
    return isinstance(X, (list, tuple)) and len(X) > 0 and all(np.ndim(bag) == 2 for bag in X)


def _classes(number: int) -> str:
    return "is 1 class" if number == 1 else f"are {number} classes"
