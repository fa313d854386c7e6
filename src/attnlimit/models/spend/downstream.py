"""What does thinned attention cost a task? Embeddings, and a classifier of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput, MissingExtra
from attnlimit.models.capture.dense import attend_dense
from attnlimit.models.capture.encode import encode, unwrap
from attnlimit.models.capture.interface import attention_as, precise
from attnlimit.models.spend.assign import Samplers
from attnlimit.models.spend.spend import spend


def embed(
    model: Any,
    texts: Sequence[Any],
    sampler: Samplers | None = None,
    *,
    seed: int = 0,
) -> Array:
    """Mean-pooled unit embeddings (texts, d); with thinned attention if a sampler is given.

    `texts` are strings or lists of token ids; each one is cut at the model's positions.
    """
    network, _ = unwrap(model)
    rows = []
    with torch.no_grad():
        for index, text in enumerate(texts):
            encoded = encode(model, text, truncate=True)
            if sampler is None:
                context: Any = attention_as(network, attend_dense)
            else:
                context = spend(model, sampler, seed=seed + index)
            with context:
                hidden = precise(network.base_model(**encoded.inputs).last_hidden_state[0])
            pooled = hidden.mean(0)
            rows.append((pooled / pooled.norm()).double().numpy())
    if not rows:
        raise BadInput("There are no texts to embed.")
    return np.stack(rows)


def fit_classifier(embeddings: Array, labels: np.ndarray) -> Any:
    """Logistic regression of labels on embeddings, as scikit-learn fits it."""
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        raise MissingExtra(
            "The classifier needs scikit-learn: `pip install scikit-learn`."
        ) from None
    return LogisticRegression(max_iter=1000, C=10.0).fit(embeddings, labels)


@dataclass(frozen=True, eq=False)
class Classification:
    """A classifier trained on dense embeddings, tested on dense and on thinned ones."""

    dense_accuracy: float
    accuracy: float
    stderr: float  # of the accuracy, over test texts
    correct: np.ndarray  # (test,) with thinned attention
    train: int
    test: int

    def __str__(self) -> str:
        return (
            f"accuracy {self.accuracy:.3f} +- {self.stderr:.3f} with thinned attention, "
            f"{self.dense_accuracy:.3f} dense ({self.train} training, {self.test} test texts)"
        )


def classify(
    model: Any,
    texts: Sequence[str],
    labels: Sequence[Any],
    sampler: Samplers,
    *,
    test_share: float = 0.4,
    seed: int = 0,
) -> Classification:
    """Logistic regression on embeddings of labelled text; only the test texts are thinned."""
    if len(texts) != len(labels):
        raise BadInput(f"There are {len(texts)} texts and {len(labels)} labels; give one for each.")
    share = checks.probability(test_share, "test_share")
    names = np.asarray([str(label) for label in labels])
    order = np.random.default_rng(seed).permutation(len(texts))
    cut = round(len(texts) * (1 - share))
    train, test = order[:cut], order[cut:]
    if len(test) < 1 or len(set(names[train])) < 2:
        raise BadInput("The labelled texts are too few: training needs two labels, testing a text.")
    known = embed(model, [texts[i] for i in train])
    classifier = fit_classifier(known, names[train])
    held = [texts[i] for i in test]
    dense = classifier.predict(embed(model, held)) == names[test]
    correct = classifier.predict(embed(model, held, sampler, seed=seed)) == names[test]
    accuracy = float(correct.mean())
    return Classification(
        dense_accuracy=float(dense.mean()),
        accuracy=accuracy,
        stderr=float(np.sqrt(accuracy * (1 - accuracy) / len(test))),
        correct=correct,
        train=len(train),
        test=len(test),
    )
