"""Documents as bags of sentence embeddings, one article being the rare signal."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np

from attnlimit.checks import Array, count
from attnlimit.errors import BadInput
from bag_sources import BagSource, Pool

WORDS = range(8, 61)
"""Shorter pieces are headings and captions, longer ones lists without full stops."""


def sentences(text: str) -> list[str]:
    """Distinct sentences of `text`, in order."""
    pieces = (piece.strip() for piece in re.split(r"(?<=[.!?])\s+|\n+", text))
    return list(dict.fromkeys(piece for piece in pieces if len(piece.split()) in WORDS))


def document_bags(
    article: str,
    length: int = 10,
    signals: int = 1,
    *,
    background: int = 60,
    per_article: int = 40,
    model: str = "minilm",
    seed: int = 0,
) -> BagSource:
    """Bags of Wikipedia sentences: positive bags hold `signals` sentences of one article.

    Instances are mean-pooled unit embeddings by `model`. All other sentences come from the
    `background` longest articles besides `article`, at most `per_article` from each. Half of
    the sentences of `article` and of half of the others are for training. Two kinds of test bags
    hold none of them: "unseen sentences" of the same articles, and "unseen articles", where the
    noise comes from the other half of the articles.
    """
    from attnlimit.models.texts import wikipedia

    count(background, "background", smallest=2)
    size = count(per_article, "per_article")
    corpus = wikipedia()
    signal = corpus[article].title
    others = sorted(
        (document for document in corpus if document.title != signal),
        key=lambda document: -len(document.text),
    )
    if background > len(others):
        raise BadInput(f"background is {background}, but there are {len(others)} other articles.")
    rng = np.random.default_rng(seed)
    hits, unseen_hits = _halves(sentence_embeddings(model, signal, None), rng)
    titles = [others[i].title for i in rng.permutation(background)]
    seen = [_halves(sentence_embeddings(model, title, size), rng) for title in titles[0::2]]
    noise, unseen_noise = (np.concatenate(part) for part in zip(*seen, strict=True))
    apart = np.concatenate([sentence_embeddings(model, title, size) for title in titles[1::2]])
    return BagSource(
        Pool(hits, noise),
        {
            "unseen sentences": Pool(unseen_hits, unseen_noise),
            "unseen articles": Pool(unseen_hits, apart),
        },
        length,
        signals,
    )


def _halves(rows: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    mixed = rows[rng.permutation(len(rows))]
    return mixed[0::2], mixed[1::2]


@lru_cache(maxsize=1)
def _model(name: str) -> Any:
    from attnlimit.models.loading import load

    return load(name)


@lru_cache(maxsize=256)
def sentence_embeddings(model: str, title: str, most: int | None) -> Array:
    """Embeddings of an article's sentences, evenly spaced if there are more than `most`."""
    from attnlimit.models.sampled import embed
    from attnlimit.models.texts import wikipedia

    result = sentences(wikipedia()[title].text)
    if most is not None and most < len(result):
        result = [result[i] for i in np.linspace(0, len(result) - 1, most).round().astype(int)]
    return embed(_model(model), result)
