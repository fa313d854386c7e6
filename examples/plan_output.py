"""How few keys keep a model's embedding? Planned before anything is thinned, then measured.

Run: python examples/plan_output.py
"""

import attnlimit as al
from attnlimit.models import load, output_errors, plan_output, try_samplers, wikipedia

TOKENS = 192


def main() -> None:
    model = load("minilm")
    text, other = (ids(model, title) for title in ("Anarchism", "Autism"))

    # Many ways to sample from the same backward passes.
    ways = {"threshold 32": al.Threshold(32), "top 64": al.TopK(64)}
    for error in output_errors(model, text, ways).values():
        print(error)

    plan = plan_output(model, text, cosine=0.995)
    print(f"\n{plan}")
    for title, tokens in (("the same article", text), ("another article", other)):
        print(f"{title}: {try_samplers(model, tokens, plan)}")


def ids(model, title):
    return model.tokenizer(wikipedia()[title].text, truncation=True, max_length=TOKENS)["input_ids"]


if __name__ == "__main__":
    main()
