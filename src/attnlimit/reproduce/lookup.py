"""What is looked for, and by which texts? Passages of articles, or labels of the user's texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models import wikipedia
from attnlimit.models.load.labelled import read_labelled
from attnlimit.models.load.load import LoadedModel, load_once
from attnlimit.models.spend.downstream import fit_classifier
from attnlimit.reproduce.experiment import Config

TESTED = 0.3
"""Share of labelled texts that are asked; the others train the classifier."""
ENDS = 2
"""Passages of an article that are not asked: the first and the last have one neighbour."""


@dataclass(frozen=True, eq=False)
class Lookup:
    """Texts as token ids, which document each is of, and which of them are asked for theirs."""

    ids: list[list[int]]
    documents: np.ndarray  # (P,)
    asked: np.ndarray  # (Q,) places
    labels: np.ndarray | None = None  # (P,) of the user's texts


@lru_cache(maxsize=2)
def _articles(name: str, tokens: int, articles: int, most: int, each: int) -> Lookup:
    """At most `most` passages of some articles, `each` of them asked, evenly spaced."""
    model = load_once(name)
    ids: list[list[int]] = []
    documents: list[int] = []
    asked: list[int] = []
    for number, document in enumerate(wikipedia().documents[:articles]):
        passages = _passages(model, document.text, tokens)[:most]
        if len(passages) < each + ENDS:
            continue
        inner = np.linspace(1, len(passages) - ENDS, each).round().astype(int)
        asked += (len(ids) + inner).tolist()
        ids += passages
        documents += [number] * len(passages)
    if len(set(documents)) < ENDS:
        raise BadInput(
            f"Fewer than two articles have {each + ENDS} passages of {tokens} tokens; ask for less."
        )
    return Lookup(ids, np.array(documents), np.array(asked))


@lru_cache(maxsize=2)
def _labelled(name: str, tokens: int, source: str, most: int) -> Lookup:
    """At most `most` of the user's texts, in an order that mixes labels; the first are asked."""
    model, found = load_once(name), read_labelled(source)
    order = np.random.default_rng(0).permutation(len(found))[:most]
    ids = [model.ids(found.texts[one], tokens) for one in order]
    tested = np.arange(round(TESTED * len(order)))
    return Lookup(ids, np.arange(len(order)), tested, np.array(found.labels)[order])


def lookup(config: Config) -> Lookup:
    """Return what a configuration asks for, once in a process."""
    if config["labelled"]:
        return _labelled(config["model"], config["tokens"], config["labelled"], config["texts"])
    sizes = (config[name] for name in ("tokens", "articles", "passages", "asked"))
    return _articles(config["model"], *sizes)


def _passages(model: LoadedModel, text: str, tokens: int) -> list[list[int]]:
    """Cut a text into passages of `tokens` tokens, those that mark its ends among them."""
    tokenizer = model.tokenizer
    assert tokenizer is not None
    empty = tokenizer("")["input_ids"]
    room, before = tokens - len(empty), empty[: (len(empty) + 1) // 2]
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    starts: Iterable[int] = range(0, len(ids) - room + 1, room)
    return [[*before, *ids[one : one + room], *empty[len(before) :]] for one in starts]


@dataclass(frozen=True, eq=False)
class Finder:
    """What embeddings of the texts that are asked find, among the dense ones of all texts."""

    task: Lookup
    dense: Array  # (P, d) unit vectors

    def found(self, vectors: Array) -> dict[str, np.ndarray]:
        """Whether each one that is asked, (Q,), finds what it looks for, by question."""
        task, asked = self.task, self.task.asked
        if task.labels is not None:
            return {"label": self._classifier.predict(vectors) == task.labels[asked]}
        similar = vectors @ self.dense.T
        similar[np.arange(len(asked)), asked] = -np.inf
        best = similar.argmax(axis=1)
        same = task.documents[best] == task.documents[asked]
        return {"article": same, "neighbour": same & (abs(best - asked) == 1)}

    def loss(self, vectors: Array) -> Array:
        """1 - cosine with the dense embedding of the same text, (Q,)."""
        return np.asarray(1 - (vectors * self.dense[self.task.asked]).sum(axis=1))

    def shaken(self, loss: float, rng: np.random.Generator) -> Array:
        """Dense embeddings turned by a random angle of this 1 - cosine, no direction preferred."""
        dense = self.dense[self.task.asked]
        noise = rng.standard_normal(dense.shape)
        noise -= (noise * dense).sum(axis=1, keepdims=True) * dense
        noise /= np.linalg.norm(noise, axis=1, keepdims=True)
        return np.asarray((1 - loss) * dense + np.sqrt(1 - (1 - loss) ** 2) * noise)

    @cached_property
    def _classifier(self) -> Any:
        """A classifier of the dense embeddings of the texts that are not asked."""
        assert self.task.labels is not None
        known = np.setdiff1d(np.arange(len(self.dense)), self.task.asked)
        return fit_classifier(self.dense[known], self.task.labels[known])
