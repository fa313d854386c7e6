"""What does a model write when it reads few keys? Against its own dense text, cache on.

Run: python studies/spend_generation.py
Run: python studies/spend_generation.py --prompt 1000 --tokens 200 --free 40
"""

import argparse

import torch

import attnlimit as al
from attnlimit.models import load, plan_output, spend, wikipedia


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--prompt", type=int, default=96, help="Tokens of the prompt.")
    asked.add_argument("--tokens", type=int, default=16, help="Tokens of dense text to follow.")
    asked.add_argument("--free", type=int, default=8, help="Tokens to generate on few keys.")
    asked.add_argument("--kl", type=float, default=0.001, help="Nats that a token may lose.")
    asked.add_argument("--title", action="append", help="An article; may be repeated.")
    given = asked.parse_args()
    loaded = load("smollm2")
    plan = plan_output(loaded, ids(loaded, "Anarchism", given.prompt), kl=given.kl)
    print(plan)
    for title in given.title or ["Alabama"]:
        prompt = torch.tensor([ids(loaded, title, given.prompt)])
        follow(loaded.model, plan, title, prompt, given.tokens, given.free)
    batch(loaded.model, plan, prompt, given.free)


def follow(model, plan, title, prompt, tokens, few):
    """Dense text, then the thinned model forced along it, then the thinned model by itself."""
    dense = generate(model, prompt, tokens)
    with torch.no_grad(), spend(model, plan) as spent:
        peak = Peak()
        start = model(prompt, use_cache=True, logits_to_keep=1)
        extra = peak.megabytes()
        rest = model(dense[:, prompt.shape[1] : -1], past_key_values=start.past_key_values)
        own = torch.cat([start.logits, rest.logits], dim=1)
    with torch.no_grad():
        true = model(dense[:, :-1], use_cache=False).logits[:, prompt.shape[1] - 1 :]
    first, second = torch.log_softmax(true, -1), torch.log_softmax(own, -1)
    kl = float((first.exp() * (first - second)).sum(-1).mean())
    same = float((own.argmax(-1) == true.argmax(-1)).float().mean())
    print(f"{title}: {prompt.shape[1]} tokens of prompt, {tokens} more; {spent}")
    print(f"  forced along the dense text: same top token at {same:.1%}, KL {kl:.2g} nats")
    free = [generate(model, prompt, few, plan, seed) for seed in (1, 1)]
    whole = generate(model, prompt, few, al.Threshold(1e12))
    dense = dense[:, : prompt.shape[1] + few]
    apart = (free[0] != dense).ravel().nonzero().ravel()
    until = "never" if not len(apart) else f"at token {int(apart[0]) - prompt.shape[1] + 1}"
    print(
        f"  by itself: leaves the dense text {until}; the same again from its seed: "
        f"{torch.equal(*free)}; dense when all keys are kept: {torch.equal(whole, dense)}"
    )
    scores = model.config.num_attention_heads * prompt.shape[1] ** 2 * 4 / 1e6
    print(f"  prompt needs {extra:.0f} MB, cache included; one layer's scores are {scores:.0f} MB")


def batch(model, plan, prompt, tokens):
    """Three prompts of different lengths, padded on the left, and each alone."""
    cuts = [prompt[0, : prompt.shape[1] - 7 * row] for row in range(3)]
    padded = torch.zeros(3, prompt.shape[1], dtype=torch.long)
    for row, cut in enumerate(cuts):
        padded[row, -len(cut) :] = cut
    mask = torch.arange(prompt.shape[1]) >= torch.tensor([[7 * row] for row in range(3)])
    together = generate(model, padded, tokens, plan, mask=mask.long())
    alone = [generate(model, cut[None], tokens, plan)[0, len(cut) :] for cut in cuts]
    own = [torch.equal(together[row, prompt.shape[1] :], one) for row, one in enumerate(alone)]
    print(f"a batch of 3 with left padding gives each sequence its own text: {own}")


def generate(model, prompt, tokens, samplers=None, seed=0, mask=None):
    options = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False}
    options |= {"attention_mask": torch.ones_like(prompt) if mask is None else mask}
    if samplers is None:
        return model.generate(prompt, **options)
    with spend(model, samplers, seed=seed):
        return model.generate(prompt, **options)


class Peak:
    """How much memory was needed since, beyond what was there."""

    def __init__(self) -> None:
        with open("/proc/self/clear_refs", "w") as control:
            control.write("5")  # forget the peak so far
        self.before = self._read("VmRSS")

    def megabytes(self) -> float:
        return self._read("VmHWM") - self.before

    def _read(self, name: str) -> float:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(name)) / 1e3


def ids(loaded, title, tokens):
    return loaded.tokenizer(wikipedia()[title].text, verbose=False)["input_ids"][:tokens]


if __name__ == "__main__":
    main()
