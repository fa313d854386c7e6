"""Does a budget hold on another text? Heads that break it, by what they were planned on.

Run: python studies/plan_transfer.py [articles]
"""

import sys

import numpy as np

from attnlimit.budgets.schemes import errors_of
from attnlimit.budgets.search import fixed_tokens
from attnlimit.budgets.seen import Queries
from attnlimit.budgets.terms import Terms
from attnlimit.budgets.transfer import next_text
from attnlimit.models import wikipedia
from attnlimit.samplers import TopK
from attnlimit.survey import ask

TERMS = Terms(0.1, 0.05, 0.99)
TOKENS = 512
PARTS = 4
SPLITS = 60


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


def main(count: int) -> None:
    long = [document.title for document in wikipedia() if len(document.text.split()) > 2500]
    articles = long[-count:]  # none of those that the rule was chosen on
    texts = np.array([needs(article, 1)[0] for article in articles])
    rng = np.random.default_rng(0)
    print(f"{len(articles)} articles, {texts.shape[1]} heads, epsilon {TERMS.epsilon}")
    print("planned on                       kept   heads below 95 %   worst head   median budget")
    for passages, margin in ((1, False), (4, False), (4, True)):
        rows = []
        for _ in range(SPLITS):
            order = rng.permutation(len(articles))
            budget = budgets(texts[order[:passages]], margin)
            rows.append(summary(texts[order[passages:]], budget))
        name = f"{passages} article{'s' if passages > 1 else ''}{' with margin' if margin else ''}"
        show(name, rows)
    own = {article: needs(article, PARTS) for article in articles[: max(1, count // 6)]}
    for margin in (False, True):
        rows = [
            summary(texts[[name != article for name in articles]], budgets(passages, margin))
            for article, passages in own.items()
        ]
        show(f"{PARTS} parts of one article{' with margin' if margin else ''}", rows)


def summary(texts: np.ndarray, budget: np.ndarray) -> tuple[float, float, float, float]:
    kept = (texts <= budget[None, :, None]).mean(axis=2)  # (texts, heads)
    below = (kept < 1 - TERMS.delta).sum(axis=1)
    return kept.mean(), below.mean(), kept.min(axis=1).mean(), np.median(budget)


def show(name: str, rows: list[tuple[float, float, float, float]]) -> None:
    kept, below, worst, tokens = np.mean(rows, axis=0)
    print(f"{name:<32s} {kept:6.2%} {below:10.2f} of 72 {worst:12.0%} {tokens:15.0f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 18)
