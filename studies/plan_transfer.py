"""Does a budget hold on another text? Heads that break it, by what they were planned on.

Top-k budgets of MiniLM's heads, on articles that the rule for the next text was not chosen on.
python studies/plan_transfer.py
"""

import numpy as np
import pandas as pd

from attnlimit.budgets.schemes import errors_of
from attnlimit.budgets.search import fixed_tokens
from attnlimit.budgets.seen import Queries
from attnlimit.budgets.terms import Terms
from attnlimit.budgets.transfer import next_text
from attnlimit.models import wikipedia
from attnlimit.samplers import TopK
from attnlimit.survey import ask
from kept import keep

TERMS = Terms(0.1, 0.05, 0.99)
TOKENS = 512
ARTICLES = 18
OWN = 3
"""Of them, those that a plan is made on alone, on some of its passages."""
PARTS = 4
SPLITS = 60
"""Random choices of what to plan on."""


def needs(article: str, parts: int) -> np.ndarray:
    """Best keys (parts, heads, queries) that each query of MiniLM needs on passages of a text."""
    found = ask("minilm", f"wikipedia:{article}", tokens=TOKENS, parts=parts).captures()
    return np.array(
        [
            [fixed_tokens(errors_of(TopK(1), Queries.of(head, 128)), TERMS) for head in one]
            for one in found
        ]
    )


def budgets(passages: np.ndarray, margin: bool) -> np.ndarray:
    """Budget of each head from (passages, heads, queries)."""
    largest = np.quantile(passages, TERMS.quantile, axis=2, method="higher")
    rule = next_text if margin else np.max
    return np.minimum([rule(column) for column in largest.T], TOKENS)


def main() -> None:
    long = [document.title for document in wikipedia() if len(document.text.split()) > 2500]
    articles = long[-ARTICLES:]  # none of those that the rule was chosen on
    texts = np.array([needs(article, 1)[0] for article in articles])
    rng = np.random.default_rng(0)
    found = []
    for passages, margin in ((1, False), (4, False), (4, True)):
        for _ in range(SPLITS):
            order = rng.permutation(len(articles))
            budget = budgets(texts[order[:passages]], margin)
            how = {"planned": "articles", "passages": passages, "margin": margin}
            found.append(how | broken(texts[order[passages:]], budget))
    for article in articles[:OWN]:
        passages, others = needs(article, PARTS), texts[[one != article for one in articles]]
        for margin in (False, True):
            how = {"planned": "passages of one article", "passages": PARTS, "margin": margin}
            found.append(how | broken(others, budgets(passages, margin)))
    frame = pd.DataFrame(found)
    by = frame.groupby(["planned", "passages", "margin"])
    error = by["below"].std() / np.sqrt(by.size())
    table = by.mean().assign(below_stderr=error, choices=by.size())
    keep(table.reset_index().assign(heads=texts.shape[1], epsilon=TERMS.epsilon))


def broken(texts: np.ndarray, budget: np.ndarray) -> dict[str, float]:
    """What budgets do on texts (texts, heads, queries): means over the texts."""
    kept = (texts <= budget[None, :, None]).mean(axis=2)  # (texts, heads)
    below = (kept < 1 - TERMS.delta).sum(axis=1)
    worst = kept.min(axis=1)
    return {
        "kept": kept.mean(),
        "below": below.mean(),
        "worst": worst.mean(),
        "budget": float(np.median(budget)),
    }


if __name__ == "__main__":
    main()
