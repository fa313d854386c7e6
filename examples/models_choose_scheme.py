"""
No scheme is best for every head
================================

The error of four ways to keep 64 keys, for four heads of MiniLM, known before anything is run.
"""

import matplotlib.pyplot as plt

import attnlimit as al

model = al.models.load("minilm")
ids = model.tokenizer(al.models.wikipedia()["Autism"].text, truncation=True, max_length=192)
cap = al.models.capture(model, ids["input_ids"], layers=[1, 5])
schemes = {
    "window 44 + 20 random": al.Window(44, random=20),
    "4 sinks + 60 recent": al.SinksAndRecent(4, 60),
    "top 64": al.TopK(64),
    "top 16 + 48 weighted": al.Keep(al.TopK(16), sample=48),
}
MARKS = "o^sD"
places = [(1, 3), (1, 8), (5, 2), (5, 9)]

figure, ax = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
for index, (name, sampler) in enumerate(schemes.items()):
    curves = [al.predict(cap, "pointwise", layer=i, head=j, sampler=sampler) for i, j in places]
    errors = [curve.root[0] for curve in curves]
    ax.plot(errors, MARKS[index], ms=8, label=name)
ax.set(xticks=range(4), xticklabels=[f"layer {i}, head {j}" for i, j in places], xlim=(-0.5, 3.5))
ax.set(yscale="log", ylabel="root mean squared error")
ax.grid(axis="y", alpha=0.25)
figure.legend(frameon=False, loc="outside upper center", ncols=2)
plt.show()
