"""Generation on few keys against the dense text, with a cache.

python studies/sampled_generation.py [--prompt 96 --tokens 16 --free 8]
"""

import argparse

import pandas as pd
import torch

import attnlimit as al
from attnlimit.models import load, sampled_attention, wikipedia
from attnlimit.models import plan as make_plan
from tables import write_tables

TITLE = "Alabama"
PADDED = 200
"""Tokens of the longest prompt of a batch."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompt", type=int, default=500, help="Tokens of the prompt.")
    parser.add_argument("--tokens", type=int, default=200, help="Tokens of dense text to follow.")
    parser.add_argument("--free", type=int, default=24, help="Tokens to generate on few keys.")
    parser.add_argument("--kl", type=float, default=0.001, help="Nats that a token may lose.")
    given = parser.parse_args()
    loaded = load("smollm2")
    plan = make_plan(loaded, ids(loaded, "Anarchism", given.prompt), kl=given.kl)
    print(plan)
    prompt = torch.tensor([ids(loaded, TITLE, given.prompt)])
    sizes = {sampler.c for sampler in plan.samplers().values()}
    row = {"text": TITLE, "prompt": given.prompt, "tokens": given.tokens, "free": given.free}
    row |= {"nats": given.kl, "c": max(sizes), "plan_keys": plan.mean_keys}
    row |= {"plan_visible": plan.mean_visible}
    row |= follow(loaded.model, plan, prompt, given.tokens, given.free)
    row["batch_as_alone"] = batch(loaded.model, plan, prompt[:, :PADDED], given.free)
    write_tables({"generation-on-few-keys": pd.DataFrame([row])})


def follow(model, plan, prompt, tokens, few):
    """Dense text, then the thinned model forced along it, then the thinned model by itself."""
    dense = generate(model, prompt, tokens)
    with torch.no_grad(), sampled_attention(model, plan) as stats:
        start = model(prompt, use_cache=True, logits_to_keep=1)
        rest = model(dense[:, prompt.shape[1] : -1], past_key_values=start.past_key_values)
        own = torch.cat([start.logits, rest.logits], dim=1)
    with torch.no_grad():
        true = model(dense[:, :-1], use_cache=False).logits[:, prompt.shape[1] - 1 :]
    first, second = torch.log_softmax(true, -1), torch.log_softmax(own, -1)
    free = [generate(model, prompt, few, plan, seed) for seed in (1, 1)]
    whole = generate(model, prompt, few, al.Threshold(1e12))
    dense = dense[:, : prompt.shape[1] + few]
    same = (free[0] == dense).ravel()[prompt.shape[1] :]
    return {
        "keys": stats.mean_keys,
        "visible": stats.mean_visible,
        "same_top": float((own.argmax(-1) == true.argmax(-1)).float().mean()),
        "kl": float((first.exp() * (first - second)).sum(-1).mean()),
        "running": stats.kl,
        "dense_text_for": int(same.int().cumprod(0).sum()),
        "same_again": torch.equal(*free),
        "dense_with_all_keys": torch.equal(whole, dense),
    }


def batch(model, plan, prompt, tokens):
    """Whether three prompts of different lengths, padded on the left, are as each alone."""
    cuts = [prompt[0, : prompt.shape[1] - 7 * row] for row in range(3)]
    padded = torch.zeros(3, prompt.shape[1], dtype=torch.long)
    for row, cut in enumerate(cuts):
        padded[row, -len(cut) :] = cut
    mask = torch.arange(prompt.shape[1]) >= torch.tensor([[7 * row] for row in range(3)])
    together = generate(model, padded, tokens, plan, mask=mask.long())
    alone = [generate(model, cut[None], tokens, plan)[0, len(cut) :] for cut in cuts]
    own = [torch.equal(together[row, prompt.shape[1] :], entry) for row, entry in enumerate(alone)]
    return all(own)


def generate(model, prompt, tokens, samplers=None, seed=0, mask=None):
    options = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False}
    options |= {"attention_mask": torch.ones_like(prompt) if mask is None else mask}
    if samplers is None:
        return model.generate(prompt, **options)
    with sampled_attention(model, samplers, seed=seed):
        return model.generate(prompt, **options)


def ids(loaded, title, tokens):
    return loaded.tokenizer(wikipedia()[title].text, verbose=False)["input_ids"][:tokens]


if __name__ == "__main__":
    main()
