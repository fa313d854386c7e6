"""A number hidden in a long text and requested at its end.

The needle is a sentence put between two sentences of the text, as in RULER's retrieval tasks, and
the question repeats it up to the number. What a model makes of it is read along the true answer:
greedy generation gives the whole number exactly where every token of it is the most likely one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnlimit.models.loading import LoadedModel, load_once
from attnlimit.reproduce.documents import passage

NEEDLE = " The special magic number for {city} is {number}."
QUESTION = "\n\nThe special magic number for {city} is"
ANSWER = " {number}"
CITIES = ("Chicago", "Boston", "Denver", "Atlanta", "Seattle", "Houston", "Phoenix", "Detroit")
DIGITS = 5


@dataclass(frozen=True)
class Haystack:
    """A text with a needle and the question, and the answer but for its last token."""

    ids: list[int]
    prompt: int  # tokens before the question
    first: int  # place of the token that the answer's first one comes after
    answer: list[int]

    def found(self, logs: Tensor) -> dict[str, float]:
        """What logarithms of chances (answer, vocabulary) along the answer say of it."""
        ids = torch.tensor(self.answer, device=logs.device)
        right = logs.argmax(-1) == ids
        return {
            "chance": float(logs.gather(1, ids[:, None]).mean().exp()),
            "tokens right": float(right.float().mean()),
            "found": float(right.all()),
        }


def haystack(
    model: str, text: str, tokens: int, depth: float, rng: np.random.Generator
) -> Haystack:
    """Hide a number at a depth, 0 the beginning and 1 the end, of a text's first tokens."""
    loaded = load_once(model)
    city = CITIES[int(rng.integers(len(CITIES)))]
    number = int(rng.integers(10 ** (DIGITS - 1), 10**DIGITS))
    fact = {"city": city, "number": number}
    hay = passage(model, text, tokens)
    place = _sentence_end(loaded, hay, depth)
    needle, question, answer = (
        loaded.ids(part.format(**fact)) for part in (NEEDLE, QUESTION, ANSWER)
    )
    prompt = [*hay[:place], *needle, *hay[place:]]
    query = [*prompt, *question]
    return Haystack([*query, *answer[:-1]], len(prompt), len(query) - 1, answer)


def _sentence_end(loaded: LoadedModel, ids: list[int], depth: float) -> int:
    """Place after the sentence's end that is nearest to a depth; the depth itself without any."""
    assert loaded.tokenizer is not None
    ends = [i + 1 for i, entry in enumerate(ids) if loaded.tokenizer.decode([entry]).endswith(".")]
    wanted = round(depth * len(ids))
    return min(ends, key=lambda end: abs(end - wanted), default=wanted)
