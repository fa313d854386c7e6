"""
Fewer keys and the output of a model
====================================

The loss of an embedding against the keys that a query reads: predicted from a few backward passes,
then measured on the same text and on another.
"""

import matplotlib.pyplot as plt

import attnlimit as al

model = al.models.load("minilm")


def tokens(title):
    """The first tokens of an article."""
    text = al.models.wikipedia()[title].text
    return model.tokenizer(text, truncation=True, max_length=160)["input_ids"]


text, other = tokens("Anarchism"), tokens("Autism")
sizes = [8, 16, 32, 64, 128]
ways = {c: al.Threshold(c) for c in sizes}
predicted = al.models.output_errors(model, text, ways)

_, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
keys = [predicted[c].mean_keys for c in sizes]
ax.loglog(keys, [predicted[c].cosine_loss for c in sizes], label="predicted")
ax.loglog(keys, [predicted[c].bound for c in sizes], ":", label="bound for independent sampling")
for name, where, mark in (("same article", text, "oC0"), ("another article", other, "sC1")):
    runs = [al.models.evaluate(model, where, ways[c], repeats=2) for c in sizes[1:4]]
    losses = [1 - run.embedding_cosine for run in runs]
    bars = [run.stderr["embedding_cosine"] for run in runs]
    ax.errorbar([run.mean_keys for run in runs], losses, bars, fmt=mark, label=name)
ax.set(xlabel="keys read by a query", ylabel="1 - cosine of the embedding")
ax.set(xticks=[10, 20, 50], xticklabels=["10", "20", "50"])
ax.minorticks_off()
ax.legend(frameon=False)
plt.show()

print(al.models.plan(model, text, cosine=0.997))
