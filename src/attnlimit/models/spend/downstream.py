"""What does thinned attention cost a task? Retrieval and classification on pooled embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput, MissingExtra
from attnlimit.models.capture.dense import attend_dense
from attnlimit.models.capture.encode import encode, unwrap
from attnlimit.models.capture.interface import attention_as, precise
from attnlimit.models.load.corpus import Corpus
from attnlimit.models.spend.spend import spend
from attnlimit.samplers import Sampler


def embed(
    model: Any,
    texts: Sequence[Any],
    sampler: Sampler | None = None,
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


def article_halves(model: Any, corpus: Corpus, tokens: int) -> list[tuple[list[int], list[int]]]:
    """Two passages of `tokens` tokens from each article that is long enough, as token ids."""
    _, tokenizer = unwrap(model)
    if tokenizer is None:
        raise BadInput("This model came without a tokenizer; load one that has it.")
    room = tokens - len(tokenizer("")["input_ids"])
    pairs = []
    for document in corpus:
        ids = tokenizer(document.text, add_special_tokens=False, verbose=False)["input_ids"]
        if len(ids) >= 2 * room:
            first, second = ids[:room], ids[room : 2 * room]
            pairs.append(tuple(tokenizer.build_inputs_with_special_tokens(p)
                               if hasattr(tokenizer, "build_inputs_with_special_tokens") else p
                               for p in (first, second)))  # fmt: skip
    if len(pairs) < 2:
        raise BadInput(f"Fewer than two documents have {2 * room} tokens; use shorter passages.")
    return pairs


def retrieved(queries: ArrayLike, targets: ArrayLike) -> np.ndarray:
    """Whether each query's most similar target is its own, (m,) boolean."""
    similarity = np.asarray(queries) @ np.asarray(targets).T
    return np.asarray(similarity.argmax(axis=1) == np.arange(len(similarity)))


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
    sampler: Sampler,
    *,
    test_share: float = 0.4,
    seed: int = 0,
) -> Classification:
    """Logistic regression on embeddings of labelled text; only the test texts are thinned."""
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        raise MissingExtra(
            "The classifier needs scikit-learn: `pip install scikit-learn`."
        ) from None
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
    classifier = LogisticRegression(max_iter=1000, C=10.0).fit(known, names[train])
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
