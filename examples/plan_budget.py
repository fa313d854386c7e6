"""Plan budgets on one article, spend them on another, and see the promise kept.

Run: python examples/plan_budget.py
"""

import numpy as np

import attnlimit as al
from attnlimit.budgets import keep_promise
from attnlimit.models import capture, load, try_samplers, wikipedia

TOKENS = 256


def main() -> None:
    model = load("minilm")
    planned, other = (capture_article(model, title) for title in ("Anarchism", "Autism"))
    plan = al.budget(planned, epsilon=0.1, delta=0.05, queries=64)
    print(plan)

    # Each head by itself, on a text that the plan has never seen.
    promise = keep_promise(plan, other, draws=20)
    print(f"\non another article: {promise}")

    # The whole model at once: every head of every layer thinned to its budget.
    thinned = try_samplers(model, ids(model, "Autism"), plan, repeats=2)
    print(
        f"all heads thinned together: {thinned.embedding_cosine:.4f} is the cosine of the "
        f"embedding with the dense one, hidden states are off by {thinned.hidden_error:.3f}"
    )
    sample = al.Iid(int(np.median(plan.to_frame().tokens)))
    plain = try_samplers(model, ids(model, "Autism"), sample, repeats=2)
    print(f"as many tokens drawn at random instead: {plain.embedding_cosine:.4f}, "
          f"{plain.hidden_error:.3f}")  # fmt: skip


def ids(model, title):
    found = model.tokenizer(wikipedia()[title].text, verbose=False)["input_ids"]
    return [*found[: TOKENS - 1], found[-1]]


def capture_article(model, title):
    return capture(model, ids(model, title))


if __name__ == "__main__":
    main()
