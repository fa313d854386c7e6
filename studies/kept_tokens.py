"""Tokens kept for all queries of a layer or of a head.

python studies/kept_tokens.py

The error of the outputs, over their own size, by rule. `selection_error` compares rules by which
every query sees the same n tokens; `attnlimit evaluate --evict` has the rules of caches.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import attnlimit as al
from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models import Capture, CapturedHead
from attnlimit.models.profile import head_influence
from attnlimit.samplers.base import generator_of
from attnlimit.samplers.systematic import proportional, systematic_sample
from tables import write_tables

SIZES = (16, 64, 256)
PLACES = (("minilm", 5, None, 512), ("smollm2", 15, 0, 300))  # model, layer, head, tokens
DRAWS = 20
RULES = (
    "influence",
    "heavy hitters",
    "recent",
    "first and recent",
    "random",
    "influence, weighted",
    "heavy hitters, weighted",
)


def selection_error(
    capture: Capture, layer: int, n: Sequence[int], *, head: int | None = None, seed: int = 0
) -> pd.DataFrame:
    """Error of a layer's outputs when every query sees only the same n tokens (and itself).

    Parameters
    ----------
    n : sequence of int
        Numbers of tokens kept.
    head : int, optional
        One head; all heads of the layer together by default, with one set of tokens for all.

    Notes
    -----
    The plain rules keep the n tokens of the highest score and forget the rest, which biases every
    softmax. The weighted ones draw token j with probability p_j proportional to its score (at most
    one) and divide its weight by p_j.

    Returns
    -------
    DataFrame
        For each n and rule, `output_error`, the root mean square error of the outputs over that
        of the outputs themselves, and `mean_error`, that of the mean output; both with the
        standard error over draws, zero for rules that draw nothing.
    """
    number = capture.check_layer(layer)
    heads = list(range(capture.heads)) if head is None else [capture.check_head(head)]
    counts = np.atleast_1d(checks.token_counts(n, smallest=1))
    if counts.max() > len(capture):
        raise BadInput(f"There are {len(capture)} tokens; {counts.max()} of them is too many.")
    captured = [capture[number, index] for index in heads]
    influences = [head_influence(captured_head) for captured_head in captured]
    place = torch.arange(len(capture)).double()
    importance = {
        "influence": torch.cat([influence.psi for influence in influences], dim=1)
        .double()
        .norm(dim=1),
        "heavy hitters": torch.stack([influence.received for influence in influences])
        .double()
        .sum(0),
        "recent": place,
        "first and recent": place.masked_fill(place < 4, torch.inf),
    }
    generator = generator_of(checks.count(seed, "seed", smallest=0))
    rows = []
    for count in counts.tolist():
        for rule in RULES:
            known, weighted = importance.get(rule.removesuffix(", weighted")), "weighted" in rule
            times = DRAWS if weighted or known is None else 1
            errors = np.empty((times, 2))
            for draw in range(times):
                scores = torch.rand(len(place), generator=generator) if known is None else known
                added = _kept(scores, count, weighted, generator)
                errors[draw] = _errors(
                    captured, [influence.output for influence in influences], added.float()
                )
            spread = errors.std(axis=0, ddof=1) / times**0.5 if times > 1 else np.zeros(2)
            both = np.stack([errors.mean(axis=0), spread], axis=1)
            rows.append((count, rule, *both.ravel().tolist()))
    names = ("output_error", "output_error_stderr", "mean_error", "mean_error_stderr")
    return pd.DataFrame(rows, columns=["n", "rule", *names])


def _kept(importance: Tensor, n: int, weighted: bool, generator: torch.Generator) -> Tensor:
    """What is added to the scores of tokens (N,) when n are kept: -inf leaves one out."""
    if not weighted:
        added = torch.full_like(importance, -torch.inf)
        added[importance.topk(n).indices] = 0.0
        return added
    weights = importance.clamp_min(1e-12 * float(importance.max()))
    chance = proportional(weights, torch.tensor(n), torch.zeros_like(weights, dtype=torch.bool))
    start = torch.rand((), generator=generator, dtype=torch.double)
    return torch.where(systematic_sample(chance, start), -torch.log(chance), -torch.inf)


def _errors(heads: list[CapturedHead], outputs: list[Tensor], added: Tensor) -> tuple[float, float]:
    """Relative error of the outputs and of their mean, over all heads together.

    `added` (N,) goes to the scores of the tokens; -inf leaves one out.
    """
    sums = np.zeros(4)
    for head, output in zip(heads, outputs, strict=True):
        parts = []
        for rows, scores in head.blocks():
            own = torch.arange(rows.start, rows.stop)
            shift = added.repeat(len(own), 1)
            shift[torch.arange(len(own)), own] = 0.0  # a query always sees itself, as it is
            parts.append(torch.softmax(scores + shift, -1) @ head.v)
        gap, output = torch.cat(parts) - output.double(), output.double()
        squares = (part.square().sum() for part in (gap, output, gap.mean(0), output.mean(0)))
        sums += [float(square) for square in squares]
    error, size, mean_error, mean_size = sums
    return (error / size) ** 0.5, (mean_error / mean_size) ** 0.5


def main() -> None:
    text, tables = al.models.wikipedia()["Anarchism"].text, []
    for name, layer, head, tokens in PLACES:
        model = al.models.load(name)
        capture = al.models.capture(model, model.ids(text, tokens))
        result = selection_error(capture, layer, SIZES, head=head)
        columns = {"kept by": result["rule"].unique()}
        for size, part in result.groupby("n"):
            columns[f"n = {size}"] = part["output_error"].to_numpy()
            columns[f"n = {size}_stderr"] = part["output_error_stderr"].to_numpy()
        tables.append(pd.DataFrame(columns))
    write_tables({"tokens-kept-for-a-layer": tables[0], "tokens-kept-for-a-sink": tables[1]})


if __name__ == "__main__":
    main()
