"""Which keys should each head keep? The error of every scheme, known before it is run."""

import attnlimit as al

model = al.models.load("minilm")
text = al.models.wikipedia()["Autism"].text
ids = model.tokenizer(text, truncation=True, max_length=256)["input_ids"]
cap = al.models.capture(model, ids, layers=[1, 5])

schemes = {
    "window 44 + 20 random": al.Window(44, random=20),
    "4 sinks + 60 recent": al.SinksAndRecent(4, 60),
    "top 64": al.TopK(64),
    "top 16 + 48 weighted": al.Keep(al.TopK(16), sample=48),
}
print("head      " + "  ".join(f"{name:>21s}" for name in schemes))
for layer, head in [(1, 3), (1, 8), (5, 2), (5, 9)]:
    errors = [
        al.predict(cap, "pointwise", layer=layer, head=head, sampler=sampler).root[0]
        for sampler in schemes.values()
    ]
    print(f"{layer}, {head:<6d} " + "  ".join(f"{error:21.3f}" for error in errors))
