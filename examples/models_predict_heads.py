"""How fast does every head of a real BERT converge? All 72 predicted from one pass."""

import numpy as np

import attnlimit as al

model = al.models.load("minilm")
text = al.models.wikipedia()["Anarchism"].text
ids = model.tokenizer(text, truncation=True, max_length=256)["input_ids"]
cap = al.models.capture(model, ids)

delta = al.models.delta_curves(cap, [32, 128, 512])
horizon = cap.horizons()
print("head     horizon   error at n = 128   delta method")
for layer, head in [(0, 0), (0, 2), (1, 8), (3, 3), (5, 9)]:
    error = np.sqrt(delta.mse[layer, head, 1])
    flag = "reliable" if delta.reliable[layer, head, 1] else "not reliable here"
    print(f"{layer}, {head:<5d} {horizon[layer, head]:7.2f}   {error:16.3f}   {flag}")

exact = al.predict(cap, "pointwise", [16, 64], layer=1, head=8)
drawn = al.measure(cap, "pointwise", [16, 64], layer=1, head=8, replicates=100)
print(
    "head 1, 8, output of a query: predicted", exact.root.round(3), "measured", drawn.root.round(3)
)
