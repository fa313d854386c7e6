"""How do our eviction and our budgets stand beside kvpress's presses? The table of docs/export.md.

Run in the project's environment after ours.py and presses.py, on the folder that they wrote.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

OURS = ("weighted", "weighted, sized by output")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("folder", type=Path)
    folder = asked.parse_args().folder
    ours = pd.DataFrame(json.loads((folder / "ours.json").read_text()))
    theirs = pd.DataFrame(json.loads((folder / "presses.json").read_text()))
    both = pd.concat([ours[ours.method.isin(OURS)], theirs[theirs.method != "full"]])
    full = theirs[theirs.method == "full"].set_index("text").perplexity
    text = "\n\n".join(
        [
            "KL, nats",
            markdown(both, "kl", "{:.4f}"),
            f"perplexity; full cache {', '.join(f'{full[one]:.2f}' for one in full.index)}",
            markdown(both, "perplexity", "{:.2f}"),
            "the same rules, ours beside kvpress's",
            same_rules(folder, ours, theirs),
        ]
    )
    (folder / "table.md").write_text(text + "\n")
    print(text)


def markdown(rows, value, form):
    """A row for each method, a column for each share kept and text, and the mean over texts."""
    texts, shares = list(rows.text.unique()), sorted(rows.keep.unique(), reverse=True)
    errors = rows.set_index(["method", "keep", "text"]).stderr
    wide = rows.set_index(["method", "keep", "text"])[value].sort_index()
    names = [one.partition(":")[2] for one in texts]
    head = ["kept", "method", *names, "mean"]
    lines = [head, ["---"] * len(head)]
    for keep in shares:
        means = {name: wide[name, keep].mean() for name in rows.method.unique()}
        for name in sorted(means, key=means.__getitem__):
            cells = [form.format(wide[name, keep, text]) for text in texts]
            if value == "kl" and name in OURS:
                spread = [errors[name, keep, text] for text in texts]
                cells = [f"{a} ± {b:.1g}" for a, b in zip(cells, spread, strict=True)]
            lines.append([f"{100 * keep:g} %", name, *cells, form.format(means[name])])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def same_rules(folder, ours, theirs):
    """Share of the kept keys that both keep, and both KLs."""
    kept = [np.load(folder / f"{name}-kept.npz") for name in ("ours", "presses")]
    lines = [["kept", "rule", "same keys", "KL here", "KL of kvpress"], ["---"] * 5]
    for (keep, name), part in ours[ours.method.isin(theirs.method)].groupby(
        ["keep", "method"], sort=False
    ):
        if name == "full":
            continue
        masks = [[file[f"{text}|{name}|{keep}"] for text in part.text] for file in kept]
        common = np.mean([(a & b).sum() / b.sum() for a, b in zip(*masks, strict=True)])
        other = theirs[(theirs.method == name) & (theirs.keep == keep)]
        lines.append(
            [f"{100 * keep:g} %", name, f"{common:.2%}", f"{part.kl.mean():.4f}",
             f"{other.kl.mean():.4f}"]
        )  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
