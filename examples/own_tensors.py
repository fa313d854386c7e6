"""
Your own queries, keys and values
=================================

Errors and budgets of attention in a plain PyTorch module. `from_arrays` takes its queries, keys and
values, and all that works on a captured model works on them, without transformers or a tokenizer.
"""

import matplotlib.pyplot as plt
import torch

import attnlimit as al

torch.manual_seed(0)
TOKENS, WIDTH, HEADS = 96, 64, 4


class Attention(torch.nn.Module):
    """Causal attention that keeps its last queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.mix(x).unflatten(-1, (3, HEADS, -1)).movedim(1, 0).transpose(1, 2)
        self.seen = q.detach(), k.detach(), v.detach()  # (H, N, d) each
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + out.transpose(0, 1).flatten(1)


layers = [Attention(), Attention()]
for layer in layers:
    layer.mix.weight.data[: 2 * WIDTH] *= 3  # sharper than at initialisation
x = torch.randn(TOKENS, WIDTH)
with torch.no_grad():
    for layer in layers:
        x = layer(x)

q, k, v = (torch.stack(part) for part in zip(*(layer.seen for layer in layers), strict=True))
cap = al.models.from_arrays(q, k, v, causal=True)
print(cap)

n = [8, 16, 32, 64]
predicted = al.predict(cap, "pointwise", n, layer=1, head=2)
measured = al.measure(cap, "pointwise", n, 300, layer=1, head=2)
_, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.6), layout="constrained")
predicted.plot(measured, ax=left)
budgets = al.budget(cap[1, 2], epsilon=0.2).schemes.values()
right.barh([b.scheme for b in budgets], [b.certified or TOKENS for b in budgets])
right.set(xlabel="tokens for a relative error of 0.2, certified", xlim=(0, TOKENS))
plt.show()
