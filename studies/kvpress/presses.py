"""kvpress's presses on the same cache, in kvpress's environment.

Writes presses.json and presses-kept.npz beside what ours.py wrote, and stops if the dense model is
not the same one, or if a head does not keep as many keys as our exported budget says.
"""

import argparse
import copy
import json
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.utils import logging

from kvpress import (
    AdaKVPress,
    ExpectedAttentionPress,
    LUKVPress,
    PyramidKVPress,
    SnapKVPress,
    StreamingLLMPress,
    TOVAPress,
)

KEPT = (0.5, 0.25, 0.1)
PRESSES = {
    "SnapKV": SnapKVPress,
    "Expected Attention": ExpectedAttentionPress,
    "TOVA": TOVAPress,
    "StreamingLLM": StreamingLLMPress,
    "PyramidKV": PyramidKVPress,
    "Ada-KV, SnapKV": lambda ratio: AdaKVPress(SnapKVPress(ratio)),
    "Ada-KV, Expected Attention": lambda ratio: AdaKVPress(ExpectedAttentionPress(ratio)),
}
BUDGETED = {
    "our budgets, SnapKV": SnapKVPress,
    "our budgets, Expected Attention": ExpectedAttentionPress,
}
STEP = 40  # tokens read at a time where dropped keys are masked; fewer where no mask is found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    logging.disable_progress_bar()
    about = json.loads((folder / "texts.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(about["model"], dtype=torch.float32).eval()
    rows, kept = [], {}
    for number, (text, ids) in enumerate(about["texts"].items()):
        prompt, rest = torch.tensor([ids]).split([about["prompt"], len(ids) - about["prompt"]], 1)
        prompted = Prompted(model, prompt)
        with torch.no_grad():
            full = after(model, rest, copied(prompted.cache), about["prompt"], rest.shape[1])
        check_dense(full, np.load(folder / f"dense-{number}.npy"))
        rows.append({"text": text, "method": "full", "keep": 1, **distances(full, full, rest[0])})
        if number == 0:
            check_budgets(model, folder, prompt)
        for keep in KEPT:
            for name, press in presses(folder, keep, about["prompt"]).items():
                with torch.no_grad():
                    mask, logs = pressed(model, press, prompted, rest)
                kept[f"{text}|{name}|{keep}"] = mask
                results = {"kept": float(mask.mean()), **distances(full, logs, rest[0])}
                rows.append({"text": text, "method": name, "keep": keep, **results})
                print(f"{text} {keep:g} {name}: {results}", flush=True)
        (folder / "presses.json").write_text(json.dumps(rows, indent=1))
    np.savez_compressed(folder / "presses-kept.npz", **kept)


def presses(folder, keep, tokens):
    """Every press at one size of the cache; half a key more, for sizes are rounded down."""
    ratio = 1 - (keep * tokens + 0.5) / tokens
    plain = {name: make(ratio) for name, make in PRESSES.items()}
    ours = {name: budgeted(folder, keep, make(), 1 - keep) for name, make in BUDGETED.items()}
    return plain | ours


def budgeted(folder, keep, scorer, ratio=None):
    """A press with our budgets: at the plan's own ratio, or at another of its curves."""
    export = folder / f"plan-{100 * keep:g}"
    about = json.loads((export / "export.json").read_text())
    own = about["compression_ratio"] if ratio is None else ratio
    press = LUKVPress(scorer, own, sink=about["sink"], window=about["window"])
    press._budget_curves = np.load(export / "budget_curves.npy", allow_pickle=False)
    return press


class Prompted:
    """A prompt that is read once, with what its layers show to a press's hook.

    A press cuts a layer's cache after its attention, so the prompt's pass is the same for all.
    """

    def __init__(self, model, prompt):
        self.model, self.length, self.shown = model, prompt.shape[1], []

        def show(module, inputs, known, output):
            self.shown.append((module, known, output))

        hooks = [
            layer.self_attn.register_forward_hook(show, with_kwargs=True)
            for layer in model.model.layers
        ]
        with torch.no_grad():
            self.cache = prefilled(model, prompt, SnapKVPress())  # of ratio 0: it keeps all
        for hook in hooks:
            hook.remove()

    def cut(self, press):
        """The cache as a press's own hook leaves it."""
        cache = copied(self.cache)
        press.post_init_from_model(self.model)
        for module, known, output in self.shown:
            module.masked_key_indices = None
            press.forward_hook(module, [], known | {"past_key_values": cache}, output)
        return cache


def copied(cache):
    """A cache that can be cut and read on from, and the old one stays; tensors are shared."""
    new = copy.copy(cache)
    new.layers = [copy.copy(layer) for layer in cache.layers]
    return new


def pressed(model, press, prompted, rest):
    """Which keys a press keeps, and what the model says after its cut."""
    scores = {}
    scorer = getattr(press, "press", press)
    score = scorer.score

    def recorded(module, *arguments):
        result = score(module, *arguments)
        scores[module.layer_idx] = result[0].clone()
        return result

    scorer.score = recorded
    cache, size = prompted.cut(press), prompted.length
    sizes = [layer.keys.shape[2] for layer in cache.layers]
    mask = torch.zeros(len(sizes), len(scores[0]), size, dtype=torch.bool)
    masked = isinstance(press, (AdaKVPress, LUKVPress))
    for layer, length in enumerate(sizes):
        if masked:
            mask[layer] = True
            indices = model.model.layers[layer].self_attn.masked_key_indices
            if indices is not None:
                mask[layer, indices[1], indices[2]] = False
        else:
            mask[layer].scatter_(1, scores[layer].topk(length, dim=-1).indices, True)
    alike = len(set(sizes)) == 1  # one mask is made for all layers, unless tokens come one by one
    step = (STEP if masked else rest.shape[1]) if alike else 1
    return mask.numpy(), after(model, rest, cache, size, step)


def prefilled(model, prompt, press):
    cache = DynamicCache()
    with press(model):
        model(prompt, past_key_values=cache, logits_to_keep=1)
    return cache


def after(model, rest, cache, start, step):
    """Logarithms of the chances of the next token, `step` tokens at a time.

    A cut cache does not know how long the text is, so positions are given. A key that is dropped
    for a head alone gets a fake one that no query of the pass sees; where kvpress finds none, half
    as many queries are asked.
    """
    logs, place = [], 0
    while place < rest.shape[1]:
        part = rest[:, place : place + step]
        positions = torch.arange(start + place, start + place + part.shape[1])[None]
        before = [copy.copy(layer) for layer in cache.layers]
        try:
            logits = model(part, past_key_values=cache, position_ids=positions).logits[0]
        except ValueError:
            if step == 1:
                raise
            cache.layers, step = before, step // 2
            continue
        logs.append(torch.log_softmax(logits, -1))
        place += part.shape[1]
    return torch.cat(logs)


def distances(full, cut, ids):
    loss = -cut[:-1].gather(1, ids[1:, None]).mean()
    kl = (full.exp() * (full - cut)).sum(-1).mean()
    return {"kl": max(0.0, float(kl)), "perplexity": float(loss.exp())}


def check_dense(full, other):
    """Stop unless both environments run the same model."""
    gap = float((full - torch.log_softmax(torch.from_numpy(other), -1)).abs().max())
    print(f"dense: log chances of the two environments differ by {gap:.1e} at most")
    if not gap < 1e-2:
        raise SystemExit("The dense models of the two environments are not the same.")


def check_budgets(model, folder, prompt):
    """Stop unless every head keeps what its exported budget says, at the plan's own ratio."""
    for keep in KEPT:
        press = budgeted(folder, keep, SnapKVPress())
        shares = 1 - press._budget_curves[round(100 * press.compression_ratio) - 1]
        with torch.no_grad():
            prefilled(model, prompt, press)
        kept, size = np.full(shares.shape, prompt.shape[1]), prompt.shape[1]
        for layer, row in enumerate(kept):
            indices = model.model.layers[layer].self_attn.masked_key_indices
            if indices is not None:
                row -= np.bincount(indices[1].numpy(), minlength=len(row))
        gap = np.abs(kept - shares * size)
        print(
            f"plan-{100 * keep:g}: {kept.size} heads keep {kept.min()} to {kept.max()} of {size} "
            f"keys, {kept.mean() / size:.2%} in all; at most {gap.max():.2f} off the budget"
        )
        if not (gap < 1).all() or np.abs(kept.sum(1) - shares.sum(1) * size).max() > 0.5 + 1e-3:
            raise SystemExit("Heads do not keep what the exported budget says.")


if __name__ == "__main__":
    main()
