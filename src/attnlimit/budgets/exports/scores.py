"""Which heads matter most to a long context? Scores in the way of retrieval heads.

Tools that read them give heads of high score more of the cache. A head's scores are the shares of
the keys it keeps, one for each text that the plan tells apart.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd

from attnlimit.budgets.exports.folder import Choices, Export, Format, as_json, must, read_object
from attnlimit.budgets.exports.needs import Needs

FILE = "head_scores.json"


def make(needs: Needs, choices: Choices) -> Export:
    """Scores of every query head, layer by layer."""
    layers, heads = needs.kept.shape
    scores = {
        f"{layer}-{head}": needs.by_text[layer, head].tolist()
        for layer in range(layers)
        for head in range(heads)
    }
    mean = needs.by_text.mean(-1)
    return Export(
        to="scores",
        model=needs.model,
        files={FILE: as_json(scores)},
        use=f"read {FILE}: scores of each query head, by layer and head",
        lost="Scores put heads in an order: how many keys each keeps, and how, are lost.",
        numbers={},
        table=pd.DataFrame(
            {
                "layer": np.arange(layers),
                "mean": mean.mean(1),
                "least": mean.min(1),
                "most": mean.max(1),
            }
        ),
    )


def check(folder: Path) -> dict[str, list[float]]:
    """Scores between 0 and 1 of every head of a table of layers."""
    path = folder / FILE
    scores = read_object(path)
    named = all(re.fullmatch(r"\d{1,6}-\d{1,6}", name) for name in scores)
    must(bool(scores) and named, path, 'an object of names such as "0-3", a layer and a head')
    places = {tuple(map(int, name.split("-"))) for name in scores}
    ends = [max(place[axis] for place in places) + 1 for axis in (0, 1)]
    must(len(places) == len(scores) == ends[0] * ends[1], path, "a score for all layers and heads")
    for values in scores.values():
        numbers = isinstance(values, list) and all(type(one) in (int, float) for one in values)
        fine = numbers and bool(values) and all(0 <= one <= 1 for one in values)
        must(fine, path, "lists of scores between 0 and 1")
    return scores


FORMAT = Format(make, check)
